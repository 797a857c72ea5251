from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from testkit.api_server.running_server import InProcessServer, running_server


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with running_server() as running:
        yield running
