"""What instances that are gone have said, and how they ended, in files of the state directory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from datum_compute.api.meta.codec import DecodeError, decode_as, encode
from datum_compute.app.agedfiles import AgedFiles, Limits
from datum_compute.drivers.queries import CrashReport

LOGS = Limits(bytes_max=64 * 1024 * 1024, files_max=10_000)
READ_BYTES_MAX = 4 * 1024 * 1024  # for one request
CRASH_REPORTS = Limits(bytes_max=16 * 1024 * 1024, files_max=2000)
REPORTS_PER_MACHINE_MAX = (
    10  # of one machine: one that crashes all day must not drive out the others
)


class LogFiles:
    """One file for each container: its machine and its own name."""

    def __init__(self, folder: Path, unix_s: Callable[[], float]) -> None:
        self._files = AgedFiles(folder, ".log", LOGS, unix_s)
        self._turn = asyncio.Lock()  # one thread at a time uses the folder

    async def save(self, machine_id: str, container: str, framed: bytes) -> None:
        if framed:
            async with self._turn:
                await asyncio.to_thread(self._files.keep, (machine_id, container), framed)

    async def load(self, server: str) -> list[tuple[str, str, bytes]]:
        async with self._turn:
            return await asyncio.to_thread(self._read, server)

    def _read(self, server: str) -> list[tuple[str, str, bytes]]:
        """Return the newest files that fit into ``READ_BYTES_MAX``, oldest first."""
        found: list[tuple[str, str, bytes]] = []
        room = READ_BYTES_MAX
        for name, file in reversed(self._files.kept()):
            if len(name) != 2 or name[0].rpartition("/")[0] != server:
                continue
            content = file.read_bytes()
            room -= len(content)
            if room < 0:
                break
            found.append((name[0], name[1], content))
        return found[::-1]


class CrashReportFiles:
    """One file for each end of a machine."""

    def __init__(self, folder: Path, unix_s: Callable[[], float]) -> None:
        self._files = AgedFiles(folder, ".json", CRASH_REPORTS, unix_s)

    def save(self, machine_id: str, card: CrashReport) -> None:
        self._files.keep((machine_id, card.ended_at), encode(card))
        own = [file for name, file in self._files.kept() if name[0] == machine_id]
        for file in own[:-REPORTS_PER_MACHINE_MAX]:
            file.unlink(missing_ok=True)

    def load(self, server: str) -> list[CrashReport]:
        found = []
        for name, file in self._files.kept():
            if name[0].rpartition("/")[0] != server:
                continue
            try:
                found.append(decode_as(file.read_bytes(), CrashReport))
            except (DecodeError, OSError):
                continue  # of a later release, or just gone
        return found
