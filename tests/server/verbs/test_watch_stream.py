"""The work of a watch between two passes of the event loop is limited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import User
from datum_compute.server.flowcontrol.control import SLICE_S, FlowControl, LoopWork
from datum_compute.server.verbs.long_requests import LongRequests
from datum_compute.server.verbs.watch_stream import WatchStream

MATCH_S = 0.0001  # cost of the comparison of one object with a selector


async def test_a_watch_yields_to_the_loop_while_it_skips_objects() -> None:
    now_s = 0.0
    skipped_at: list[int] = []  # the pass of the loop in which each object was skipped
    passes = 0
    control = FlowControl(lambda: now_s)

    def initial() -> Iterator[bytes]:
        nonlocal now_s
        for _ in range(1000):
            now_s += MATCH_S
            skipped_at.append(passes)
            yield b""
        yield b"selected\n"

    async def count_passes() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    work = LoopWork(control, control.flow_of(User("ann"), PlaneName("project/a")))
    stream = WatchStream(initial(), None, cast("Any", None), LongRequests(), work)
    counting = asyncio.create_task(count_passes())
    assert [line async for line in stream] == [b"selected\n"]
    counting.cancel()
    skipped_in_one_pass = max(skipped_at.count(number) for number in set(skipped_at))
    assert skipped_in_one_pass <= 2 * (SLICE_S / MATCH_S + 1)


async def test_a_batch_of_lines_ends_when_skipping_uses_its_time_slice() -> None:
    now_s = 0.0

    def initial() -> Iterator[bytes]:
        nonlocal now_s
        yield b"first\n"
        for _ in range(1000):
            now_s += MATCH_S
            yield b""
        yield b"last\n"

    work = LoopWork(FlowControl(lambda: now_s))
    stream = WatchStream(initial(), None, cast("Any", None), LongRequests(), work)
    assert stream.take_ready(1000) == b"first\n"
    assert now_s <= SLICE_S + MATCH_S
    assert [line async for line in stream] == [b"last\n"]
