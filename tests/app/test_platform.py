"""A platform stops without warnings while its controllers are busy."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.planes import cell_plane
from datum_compute.store.journal import Entry, MemoryJournal
from testkit.sim.actors.users import DesiredWorkload, manifest
from tests.app.running_platform import FIRST, Running, on_a_platform


class SlowDisk(MemoryJournal):
    """A journal with slow commits, so that some request always waits for one."""

    async def append(self, batch: Sequence[Entry]) -> None:
        await asyncio.sleep(0.1)
        await super().append(batch)


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
