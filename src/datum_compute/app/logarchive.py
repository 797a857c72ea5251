"""What instances that are gone have said, and how they ended, in files of the state directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from datum_compute.api.codec import DecodeError, decode_as, encode
from datum_compute.app.agedfiles import AgedFiles, Limits
from datum_compute.drivers.containers.cards import CrashCard

LOGS = Limits(bytes_max=64 * 1024 * 1024, files_max=10_000)
CARDS = Limits(bytes_max=16 * 1024 * 1024, files_max=2000)
CARDS_EACH = 10  # of one machine: one that crashes all day must not drive out the others


class FileArchive:
    """One file for each container: its machine and its own name."""

    def __init__(self, folder: Path, unix_s: Callable[[], float]) -> None:
        self._files = AgedFiles(folder, ".log", LOGS, unix_s)

    def keep(self, machine_id: str, container: str, framed: bytes) -> None:
        if framed:
            self._files.keep((machine_id, container), framed)

    def kept(self, server: str) -> list[tuple[str, str, bytes]]:
        return [
            (name[0], name[1], file.read_bytes())
            for name, file in self._files.kept()
            if len(name) == 2 and name[0].rpartition("/")[0] == server
        ]


class CardArchive:
    """One file for each end of a machine."""

    def __init__(self, folder: Path, unix_s: Callable[[], float]) -> None:
        self._files = AgedFiles(folder, ".json", CARDS, unix_s)

    def keep(self, machine_id: str, card: CrashCard) -> None:
        self._files.keep((machine_id, card.ended_at), encode(card))
        own = [file for name, file in self._files.kept() if name[0] == machine_id]
        for file in own[:-CARDS_EACH]:
            file.unlink(missing_ok=True)

    def kept(self, server: str) -> list[CrashCard]:
        found = []
        for name, file in self._files.kept():
            if name[0].rpartition("/")[0] != server:
                continue
            try:
                found.append(decode_as(file.read_bytes(), CrashCard))
            except (DecodeError, OSError):
                continue  # of a later release, or just gone
        return found
