"""The hubs that tests run on.

These are the embedded one, a real Karmada with real cells, and a real Karmada whose cells are our
own server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from testkit.processes.api_servers import RealServers, needed_assets
from tests.karmada.assets import needed_karmada
from tests.karmada.federation import Story, run_embedded
from tests.karmada.members import Members

Runs = Callable[[Story], None]


@pytest.fixture(scope="session")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    servers = RealServers(needed_assets(), tmp_path_factory.mktemp("karmada"))
    found = Members(servers, needed_karmada())
    try:
        found.start()
        yield found
    finally:
        found.stop()


_REAL = (pytest.mark.e2e, pytest.mark.kubernetes, pytest.mark.karmada, pytest.mark.timeout(240))


@pytest.fixture(
    params=["embedded", *(pytest.param(real, marks=_REAL) for real in ("karmada", "mixed"))]
)
def runs(request: pytest.FixtureRequest) -> Runs:
    """Run a test on one of the hubs."""
    name = str(request.node.nodeid)
    if request.param == "embedded":
        return lambda story: run_embedded(story, name)
    members: Members = request.getfixturevalue("members")
    return lambda story: members.run(story, name, mixed=request.param == "mixed")
