"""What makes writes durable. A batch is on disk as a whole, or not at all.

A journal is used by one Store at a time and appends one batch after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec


class ObjectKey(NamedTuple):
    """Where an object lies inside its plane: ``plural.group``, namespace, name."""

    resource: str
    namespace: str
    name: str


class Change(msgspec.Struct, frozen=True):
    """One object at a new version; without a body it is gone."""

    plane: str
    version: int
    key: ObjectKey
    body: bytes | None


@dataclass(frozen=True, slots=True)
class PlaneCreated:
    plane: str


@dataclass(frozen=True, slots=True)
class PlaneDeleted:
    """The plane and everything in it. Takes a version, so that no watch continues over it."""

    plane: str
    version: int


Entry = Change | PlaneCreated | PlaneDeleted


class JournalError(Exception):
    """The batch is not durable (disk full, read-only); nothing of it was kept."""


class JournalBroken(Exception):
    """The batch may or may not be durable (a failed sync): only loading anew can tell."""


@dataclass(frozen=True, slots=True)
class LoadedPlane:
    """What a plane held when the process last stopped or died.

    A deleted plane holds nothing but its version, which a plane of the same name continues.
    """

    version: int
    objects: dict[ObjectKey, tuple[int, bytes]]
    deleted: bool = False


class Journal(Protocol):
    async def load(self) -> dict[str, LoadedPlane]:
        """Everything that is durable, by plane."""
        ...

    async def append(self, batch: Sequence[Entry]) -> None:
        """Return when the batch is durable; raise JournalError when none of it is.

        Raises JournalBroken when that cannot be known; then the journal is not used again.
        """
        ...

    async def close(self) -> None: ...


# --- A journal in memory: for tests, and as the disk of a simulated machine that survives crashes


class MemoryJournal:
    """Keeps what was appended, across any number of Stores."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}  # outlive their plane
        self._objects: dict[str, dict[ObjectKey, tuple[int, bytes]]] = {}

    def take(self, planes: Mapping[str, LoadedPlane]) -> None:
        """Hold these planes, as if they had been loaded and written anew."""
        for name, plane in planes.items():
            self._versions[name] = plane.version
            if not plane.deleted:
                self._objects[name] = dict(plane.objects)

    def copy(self) -> MemoryJournal:
        """Another one that holds the same."""
        twin = MemoryJournal()
        twin._versions = dict(self._versions)
        twin._objects = {plane: dict(objects) for plane, objects in self._objects.items()}
        return twin

    def restore(self, plane: str, backup: MemoryJournal) -> None:
        """Hold of a plane what the backup holds, at a version ahead of all that were given out, so
        that whoever has seen those lists anew."""
        self._objects[plane] = dict(backup._objects[plane])
        self._versions[plane] += 1

    async def load(self) -> dict[str, LoadedPlane]:
        return {
            plane: LoadedPlane(
                version, dict(self._objects.get(plane, {})), deleted=plane not in self._objects
            )
            for plane, version in self._versions.items()
        }

    async def append(self, batch: Sequence[Entry]) -> None:
        for entry in batch:
            self._apply(entry)

    async def close(self) -> None:
        return None

    def _apply(self, entry: Entry) -> None:
        match entry:
            case PlaneCreated(plane):
                self._versions.setdefault(plane, 0)
                self._objects.setdefault(plane, {})
            case PlaneDeleted(plane, version):
                self._versions[plane] = version
                self._objects.pop(plane, None)
            case Change(plane, version, key, body):
                self._versions[plane] = version
                if body is None:
                    self._objects[plane].pop(key, None)
                else:
                    self._objects[plane][key] = (version, body)
