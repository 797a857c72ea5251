from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.running_server import Server, running_server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with running_server() as running:
        yield running
