"""A real API server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.processes.api_servers import RealPlane, running_servers


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPlane]:
    with running_servers(tmp_path_factory.mktemp("one")) as servers:
        yield servers.start_plane("one")
