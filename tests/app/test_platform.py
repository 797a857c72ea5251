"""A platform stops without warnings while its controllers are busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from datum_compute.api.compute.instance import QUOTA_GRANTED, READY
from datum_compute.api.conditions import Reason, find_condition, is_true
from datum_compute.api.kinds import BUCKET, CLAIM, INSTANCE, WORKLOAD
from datum_compute.api.planes import cell_plane
from datum_compute.store.journal import Entry, MemoryJournal
from testkit.sim.actors.users import DesiredWorkload, manifest
from tests.app.running_platform import FIRST, Running, on_a_platform, until


class SlowDisk(MemoryJournal):
    """A journal with slow commits, so that some request always waits for one."""

    async def append(self, batch: Sequence[Entry]) -> None:
        await asyncio.sleep(0.1)
        await super().append(batch)


def test_no_instance_waits_for_quota_while_an_operator_has_switched_it_off() -> None:
    async def story(running: Running) -> None:
        project = running.client(FIRST)

        async def number_of_buckets() -> int:
            return len((await project.list(BUCKET)).items)

        async def has_buckets() -> bool:
            return await number_of_buckets() > 0

        async def has_no_buckets() -> bool:
            return await number_of_buckets() == 0

        async def all_run() -> bool:
            items = (await project.list(INSTANCE)).items
            return len(items) == 11 and all(is_true(i.status.conditions, READY) for i in items)

        await until(has_buckets)
        await running.stop()
        running.enforces_quota = False
        await running.start()
        project = running.client(FIRST)
        await until(has_no_buckets)
        web = manifest(("first", "web"), DesiredWorkload("web:1", 11, ("DFW",)))
        await project.create_plain(WORKLOAD, web)
        await until(all_run)
        conditions = [
            find_condition(instance.status.conditions, QUOTA_GRANTED)
            for instance in (await project.list(INSTANCE)).items
        ]
        assert {c.reason for c in conditions if c is not None} == {Reason.QUOTA_DISABLED}
        assert (await project.list(CLAIM)).items == []
        await running.stop()
        running.enforces_quota = True
        await running.start()
        project = running.client(FIRST)
        await until(has_buckets)

    on_a_platform(story, cell_plane("dfw"))


def test_no_controller_logs_a_warning_when_the_platform_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(running: Running) -> None:
        await running.stop()
        running.disk = SlowDisk()
        for number, seconds in enumerate((0.05, 0.25, 0.55, 1.05)):
            await running.start()
            web = manifest(("first", f"web{number}"), DesiredWorkload("web:1", 3, ("DFW",)))
            await running.client(FIRST).create_plain(WORKLOAD, web)
            await asyncio.sleep(seconds)
            await running.stop()

    with caplog.at_level(logging.WARNING):
        on_a_platform(story, cell_plane("dfw"))
    assert caplog.messages == []
