"""Files that are kept for a while: a private folder, the oldest of which go first, by age, by
number and by size. What cannot be written is lost, and the log says so; nothing waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from datum_compute.app.state_directory import private_directory

AGE_S = 24 * 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one folder."""

    bytes_max: int
    files_max: int
    age_s: float = AGE_S


class AgedFiles:
    """A file is known by the parts of its name, whatever they hold."""

    def __init__(
        self, folder: Path, ending: str, limits: Limits, unix_s: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._ending = ending
        self._limits = limits
        self._unix_s = unix_s

    def keep(self, name: tuple[str, ...], content: bytes) -> None:
        file = self._folder / (",".join(quote(part, safe="") for part in name) + self._ending)
        try:
            private_directory(self._folder.parent)
            private_directory(self._folder)
            draft = file.with_suffix(".new")
            draft.write_bytes(content)
            draft.replace(file)
            self._prune()
        except OSError as error:
            _log.warning("%s is not kept: %s", file, error.strerror)

    def kept(self) -> list[tuple[tuple[str, ...], Path]]:
        """Names and files, the oldest first; not those that have had their time."""
        return [(self._name(file), file) for file in self._files() if not self._is_old(file)]

    def _name(self, file: Path) -> tuple[str, ...]:
        parts = file.name.removesuffix(self._ending).split(",")
        return tuple(unquote(part) for part in parts)

    def _files(self) -> list[Path]:
        found = self._folder.glob(f"*{self._ending}") if self._folder.is_dir() else ()
        return sorted(found, key=lambda file: (file.stat().st_mtime, file.name))

    def _is_old(self, file: Path) -> bool:
        return self._unix_s() - file.stat().st_mtime >= self._limits.age_s

    def _prune(self) -> None:
        files = self._files()
        size, count = sum(file.stat().st_size for file in files), len(files)
        for file in files:
            is_room = size <= self._limits.bytes_max and count <= self._limits.files_max
            if is_room and not self._is_old(file):
                break
            size, count = size - file.stat().st_size, count - 1
            file.unlink(missing_ok=True)
