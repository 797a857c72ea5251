"""Async servers on a separate event loop, while a test blocks on commands."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")
READY_S = 30


@contextmanager
def in_background(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter and exit the context manager on the event loop of another thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(served.__aenter__(), loop).result(READY_S)
    finally:
        leaving = served.__aexit__(None, None, None)
        asyncio.run_coroutine_threadsafe(leaving, loop).result(READY_S)
        # The library closes connections asynchronously.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.2), loop).result(READY_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
