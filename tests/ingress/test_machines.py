"""Machines behind the ingress: what it requests from the cell, and what it does without one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend, CellUnavailable, Rank, SleepPolicy, WakeFailed
from datum_compute.ingress.machines import CELL_GRACE_S, CellLinks, MachinePool
from datum_compute.ingress.protocol import (
    ActivityReport,
    ControlLink,
    LinkClosed,
    Message,
    WakeMachine,
    Woken,
)
from testkit.sim.loop import VirtualLoop, run_virtual

CELL = cell_plane("dfw")
RUNNING = Backend(CELL, "ns/web/1", "10.0.0.1", 80, SleepPolicy(0.5, "pause", 10.0))
ASLEEP = replace(RUNNING, asleep=True)
MACHINE_ID = RUNNING.machine_id


class CellLink(ControlLink):
    """A connection to a cell that records messages, and replies to requests to wake."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)

    async def request(self, build: Callable[[int], Message], timeout_s: float = 0.0) -> Woken:
        self.sent.append(build(1))
        await asyncio.sleep(0.1)
        if self.failure == "closed":
            raise LinkClosed("closed")
        return Woken(1, failure=self.failure)


class Pool:
    def __init__(self, loop: VirtualLoop) -> None:
        self.links = CellLinks(loop.time)
        self.changes = 0
        self.machines = MachinePool(self.links, loop.time, self._count_change)

    def _count_change(self) -> None:
        self.changes += 1

    def connect(self, failure: str = "") -> CellLink:
        link = CellLink(failure)
        self.links.add([CELL], link)
        return link


def run_with_pool(story: Callable[[Pool], Awaitable[None]]) -> None:
    async def main(loop: VirtualLoop) -> None:
        pool = Pool(loop)
        await story(pool)
        await pool.machines.close()

    run_virtual(Random(1), main)


def test_many_connections_to_a_sleeping_machine_request_one_wake() -> None:
    async def story(pool: Pool) -> None:
        link = pool.connect()
        pool.machines.track([ASLEEP])
        await asyncio.gather(*(pool.machines.ensure_awake(MACHINE_ID, 0.0) for _ in range(5)))
        assert [type(message) for message in link.sent] == [WakeMachine]
        assert pool.machines.rank(MACHINE_ID) is Rank.AWAKE
        assert pool.changes == 1, "the stored configuration changes"

    run_with_pool(story)


def test_a_failed_wake_reports_the_reason_of_the_cell() -> None:
    async def story(pool: Pool) -> None:
        pool.connect("container app exited with code 7")
        pool.machines.track([ASLEEP])
        with pytest.raises(WakeFailed, match="container app exited with code 7"):
            await pool.machines.ensure_awake(MACHINE_ID, 0.0)
        assert pool.machines.rank(MACHINE_ID) is Rank.ASLEEP

    run_with_pool(story)


def test_without_its_cell_a_sleeping_machine_is_unavailable_and_a_running_one_is_used() -> None:
    async def story(pool: Pool) -> None:
        pool.machines.track([ASLEEP, replace(RUNNING, machine_id="ns/web/2")])
        await asyncio.sleep(CELL_GRACE_S)
        with pytest.raises(CellUnavailable):
            await pool.machines.ensure_awake(MACHINE_ID, 0.0)
        assert await pool.machines.ensure_awake("ns/web/2", 0.0) is None

    run_with_pool(story)


def test_a_connection_waits_for_a_cell_that_reconnects() -> None:
    async def story(pool: Pool) -> None:
        pool.machines.track([ASLEEP])
        waiting = asyncio.create_task(pool.machines.ensure_awake(MACHINE_ID, 0.0))
        await asyncio.sleep(CELL_GRACE_S / 2)
        pool.connect()
        await waiting
        assert pool.machines.is_awake(MACHINE_ID)

    run_with_pool(story)


def test_a_wake_during_which_the_cell_ends_fails() -> None:
    async def story(pool: Pool) -> None:
        pool.connect("closed")
        pool.machines.track([ASLEEP])
        with pytest.raises(WakeFailed):
            await pool.machines.ensure_awake(MACHINE_ID, 0.0)

    run_with_pool(story)


def test_a_machine_with_a_connection_is_not_confirmed_as_idle() -> None:
    async def story(pool: Pool) -> None:
        pool.machines.track([RUNNING])
        pool.machines.add_connection(MACHINE_ID)
        assert not pool.machines.confirm_idle(MACHINE_ID, 0.5)
        pool.machines.remove_connection(MACHINE_ID)
        assert not pool.machines.confirm_idle(MACHINE_ID, 0.5), "it was used just now"
        await asyncio.sleep(0.5)
        assert pool.machines.confirm_idle(MACHINE_ID, 0.5)
        assert pool.machines.observe(RUNNING) == ASLEEP

    run_with_pool(story)


def test_a_machine_that_is_confirmed_as_idle_is_woken_by_the_next_connection() -> None:
    async def story(pool: Pool) -> None:
        link = pool.connect()
        pool.machines.track([RUNNING])
        assert not pool.machines.confirm_idle(MACHINE_ID, 0.5), "it is new"
        await asyncio.sleep(0.5)
        assert pool.machines.confirm_idle(MACHINE_ID, 0.5)
        pool.machines.track([RUNNING])  # reported before it fell asleep
        await pool.machines.ensure_awake(MACHINE_ID, 0.0)
        assert any(isinstance(message, WakeMachine) for message in link.sent)

    run_with_pool(story)


def test_connections_are_reported_to_the_cell_together() -> None:
    async def story(pool: Pool) -> None:
        link = pool.connect()
        pool.machines.track([RUNNING])
        for _ in range(3):
            pool.machines.add_connection(MACHINE_ID)
        await asyncio.sleep(0.1)
        (report,) = link.sent
        assert isinstance(report, ActivityReport)
        assert report.machines[MACHINE_ID].count == 3

    run_with_pool(story)


def test_connections_of_a_predecessor_keep_a_machine_awake() -> None:
    async def story(pool: Pool) -> None:
        pool.machines.track([RUNNING])
        predecessor = CellLink()
        pool.machines.set_inherited(predecessor, {MACHINE_ID: 2})
        assert pool.machines.connections(MACHINE_ID) == 2
        assert not pool.machines.confirm_idle(MACHINE_ID, 0.0)
        pool.machines.set_inherited(predecessor, {})
        assert pool.machines.connections(MACHINE_ID) == 0

    run_with_pool(story)
