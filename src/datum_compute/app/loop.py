"""Runs a process until SIGTERM or SIGINT, on uvloop where it is installed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

try:
    from uvloop import new_event_loop
except ImportError:  # an optional extra
    from asyncio import new_event_loop  # type: ignore[assignment]

R = TypeVar("R")


def run_until_stopped(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> int:
    """``serve`` is given the event that says it is time to stop; returns the exit code."""
    run_loop(_with_signals(serve))
    return 0


def run_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run to the end, on the loop the processes run on."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


async def _with_signals(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(stop)
