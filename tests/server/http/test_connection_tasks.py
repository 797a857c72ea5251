"""The coroutine of a request runs at once, and becomes a task only if it waits."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from datum_compute.server.http.connection import run_eagerly

PLACE: ContextVar[str] = ContextVar("PLACE", default="outside")


async def test_a_coroutine_that_does_not_wait_completes_at_once() -> None:
    async def answer() -> int:
        return 42

    assert run_eagerly(asyncio.get_running_loop(), answer()) == 42


async def test_a_coroutine_that_waits_continues_as_a_task_in_its_context() -> None:
    signal: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def answer() -> tuple[int, str]:
        token = PLACE.set("inside")
        await asyncio.sleep(0)
        found = await signal
        place = PLACE.get()
        PLACE.reset(token)  # fails in any other context
        return found, place

    task = run_eagerly(asyncio.get_running_loop(), answer())
    assert isinstance(task, asyncio.Task)
    assert PLACE.get() == "outside"
    signal.set_result(1)
    assert await task == (1, "inside")


async def test_errors_are_raised_before_and_after_a_wait() -> None:
    async def at_once() -> None:
        raise ValueError("at once")

    async def later() -> None:
        await asyncio.sleep(0)
        raise ValueError("later")

    loop = asyncio.get_running_loop()
    with pytest.raises(ValueError, match="at once"):
        run_eagerly(loop, at_once())
    task = run_eagerly(loop, later())
    assert isinstance(task, asyncio.Task)
    with pytest.raises(ValueError, match="later"):
        await task


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_task_can_be_cancelled_at_any_time(turns: int) -> None:
    ended = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    task = run_eagerly(asyncio.get_running_loop(), waiting())
    assert isinstance(task, asyncio.Task)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]
