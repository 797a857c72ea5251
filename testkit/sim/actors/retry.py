"""Polling: check a condition until it holds. API errors count as "not yet"."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from datum_compute.api.errors import ApiError, NotFound, Unreachable
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.client.client import Client

RETRY_S = 0.3


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        try:
            if await holds():
                return
        except (ApiError, Unreachable):
            pass
        await asyncio.sleep(RETRY_S)


async def wait_until_deleted(client: Client, kind: KindInfo[Any], ref: Ref) -> None:
    async def is_gone() -> bool:
        try:
            await client.get(kind, ref)
        except NotFound:
            return True
        return False

    await until(is_gone)
