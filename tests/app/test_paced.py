"""A file that many changes ask to be written: how often it is, and that the last state is in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

from datum_compute.app.debounced_file import Apart, DebouncedFile
from testkit.sim.loop import VirtualLoop, run_virtual

Write = Callable[[], None]


async def at_once(write: Write) -> None:
    write()


class File:
    """``state`` is what is to be in it; ``lasting`` of what was written is on disk."""

    def __init__(self) -> None:
        self.state = 0
        self.written: list[int] = []
        self.lasting: list[int] = []
        self.refusals = 0

    def paced(self, apart: Apart = at_once, pause_s: float = 1.0) -> DebouncedFile:
        return DebouncedFile(
            Path("unused"),
            lambda: b"%d" % self.state,
            pause_s,
            passing=self._write,
            lasting=self._write_lasting,
            apart=apart,
        )

    def _write(self, _path: Path, content: bytes) -> None:
        if self.refusals:
            self.refusals -= 1
            raise OSError("no space left on device")
        self.written.append(int(content))

    def _write_lasting(self, path: Path, content: bytes) -> None:
        self._write(path, content)
        self.lasting.append(int(content))


def test_a_thousand_changes_are_not_a_thousand_writes_and_the_last_state_is_not_forgotten() -> None:
    file = File()

    async def main(_loop: VirtualLoop) -> None:
        save = file.paced()
        for number in range(1, 1001):
            file.state = number
            save()
            await asyncio.sleep(0.002)
        await asyncio.sleep(5)

    run_virtual(Random(1), main)
    assert file.written[0] == 1
    assert len(file.written) < 6
    assert file.written[-2:] == [1000, 1000]


def test_the_disk_is_waited_for_once_when_it_is_quiet_again() -> None:
    file = File()

    async def main(_loop: VirtualLoop) -> None:
        save = file.paced()
        for number in (1, 2):
            for _ in range(1000):
                file.state = number
                save()
                await asyncio.sleep(0.005)
            assert file.lasting == list(range(1, number))
            await asyncio.sleep(5)

    run_virtual(Random(1), main)
    assert file.lasting == [1, 2]


def test_what_the_disk_refuses_later_on_is_written_when_it_takes_it() -> None:
    file = File()

    async def main(_loop: VirtualLoop) -> None:
        save = file.paced()
        save()
        file.state, file.refusals = 1, 2
        save()
        await asyncio.sleep(10)

    run_virtual(Random(1), main)
    assert file.lasting == [1]


async def test_what_was_to_be_written_is_written_when_the_process_ends() -> None:
    file, before = File(), asyncio.all_tasks()
    save = file.paced(pause_s=3600.0)
    save()
    await asyncio.sleep(0)
    file.state = 1
    save()
    pausing = asyncio.all_tasks() - before
    for task in pausing:
        task.cancel()
    await asyncio.wait(pausing)
    assert file.lasting == [1]


def test_a_write_that_was_on_its_way_does_not_undo_one_that_could_not_wait() -> None:
    file, held = File(), list[Write]()

    async def later(write: Write) -> None:
        held.append(write)

    async def main(_loop: VirtualLoop) -> None:
        save = file.paced(later)
        save()
        file.state = 1
        save()
        await asyncio.sleep(1.5)
        file.state = 2
        save.now()
        held[0]()

    run_virtual(Random(1), main)
    assert file.written[:2] == [0, 2]
    assert 1 not in file.written
