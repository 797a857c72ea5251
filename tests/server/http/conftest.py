from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from datum_compute.server.http import connection
from datum_compute.server.http import server as port
from testkit.api_server.running_server import InProcessServer, running_server


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with running_server() as running:
        yield running


@pytest.fixture
def short_linger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Close a connection soon after its request was refused."""
    monkeypatch.setattr(connection, "LINGER_S", 0.01)
    monkeypatch.setattr(port, "SWEEP_S", 0.01)
