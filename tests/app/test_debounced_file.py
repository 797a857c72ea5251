"""Debounced files: number of writes, and that the last state is written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from datum_compute.app.debounced_file import DebouncedFile
from testkit.sim.loop import VirtualLoop, run_virtual


class RecordedFile:
    """Records writes of ``state``. The next ``failures`` writes fail."""

    def __init__(self) -> None:
        self.state = 0
        self.written: list[int] = []
        self.synced: list[int] = []
        self.failures = 0

    def debounced(self, interval_s: float = 1.0, *, must_write_first: bool = True) -> DebouncedFile:
        return DebouncedFile(
            Path("unused"),
            lambda: b"%d" % self.state,
            interval_s,
            write=self._write,
            write_synced=self._write_synced,
            must_write_first=must_write_first,
        )

    def _write(self, _path: Path, content: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left on device")
        self.written.append(int(content))

    def _write_synced(self, path: Path, content: bytes) -> None:
        self._write(path, content)
        self.synced.append(int(content))


def test_a_thousand_changes_are_few_writes_that_end_with_the_last_state() -> None:
    file = RecordedFile()

    async def main(_loop: VirtualLoop) -> None:
        save = file.debounced()
        for number in range(1, 1001):
            file.state = number
            save()
            await asyncio.sleep(0.002)
        await asyncio.sleep(5)

    run_virtual(Random(1), main)
    assert file.written[0] == 1
    assert len(file.written) < 6
    assert file.written[-1] == 1000


def test_the_first_change_after_a_quiet_interval_is_written_at_once() -> None:
    file = RecordedFile()

    async def main(_loop: VirtualLoop) -> None:
        save = file.debounced()
        for number in (1, 2):
            file.state = number
            save()
            assert file.written[-1] == number
            await asyncio.sleep(5)

    run_virtual(Random(1), main)
    assert file.written == [1, 2]


def test_a_failed_write_is_retried() -> None:
    file = RecordedFile()

    async def main(_loop: VirtualLoop) -> None:
        save = file.debounced()
        save()
        file.state, file.failures = 1, 2
        save()
        await asyncio.sleep(10)

    run_virtual(Random(1), main)
    assert file.written == [0, 1]


def test_a_first_write_that_may_fail_is_retried() -> None:
    file = RecordedFile()

    async def main(_loop: VirtualLoop) -> None:
        save = file.debounced(must_write_first=False)
        file.state, file.failures = 1, 2
        save()
        await asyncio.sleep(10)

    run_virtual(Random(1), main)
    assert file.written == [1]


async def test_pending_changes_are_synced_when_the_process_ends() -> None:
    file, before = RecordedFile(), asyncio.all_tasks()
    save = file.debounced(interval_s=3600.0)
    save()
    await asyncio.sleep(0)
    file.state = 1
    save()
    pending = asyncio.all_tasks() - before
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    assert file.synced == [1]


def test_a_change_that_must_not_be_lost_replaces_pending_ones() -> None:
    file = RecordedFile()

    async def main(_loop: VirtualLoop) -> None:
        save = file.debounced()
        save()
        file.state = 1
        save()
        file.state = 2
        save.write_now()
        assert file.synced == [2]
        await asyncio.sleep(5)

    run_virtual(Random(1), main)
    assert file.written == [0, 2]
