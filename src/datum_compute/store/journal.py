"""Journal: makes the writes of a store durable. A batch is durable as a whole, or not at all.

One Store at a time uses a journal, and appends one batch after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec


class ObjectKey(NamedTuple):
    """Identifies an object in its plane: ``plural.group``, namespace, name."""

    resource: str
    namespace: str
    name: str


class Change(msgspec.Struct, frozen=True):
    """One object at a new version. A change without a body deletes the object."""

    plane: str
    version: int
    key: ObjectKey
    body: bytes | None


@dataclass(frozen=True, slots=True)
class PlaneCreated:
    plane: str


@dataclass(frozen=True, slots=True)
class PlaneDeleted:
    """Deletes a plane and its objects. Has a version, so that no watch continues over it."""

    plane: str
    version: int


Entry = Change | PlaneCreated | PlaneDeleted


class JournalError(Exception):
    """The batch is not durable (disk full, read-only). The journal contains no part of it."""


class JournalBroken(Exception):
    """The batch may or may not be durable (a failed sync). Load the journal again to find out."""


@dataclass(frozen=True, slots=True)
class LoadedPlane:
    """The durable objects of a plane: version and body by key.

    A deleted plane has only a version. A new plane of the same name continues it.
    """

    version: int
    objects: dict[ObjectKey, tuple[int, bytes]]
    deleted: bool = False


class Journal(Protocol):
    async def load(self) -> dict[str, LoadedPlane]:
        """Return the durable state by plane."""
        ...

    async def append(self, batch: Sequence[Entry]) -> None:
        """Return when the batch is durable. Raise JournalError if no part of it is.

        Raises JournalBroken if the result is unknown. The journal cannot be used after that.
        """
        ...

    async def close(self) -> None: ...


# --- In memory
# For tests, and as the disk of a simulated host, which outlives its crashes.


class MemoryJournal:
    """Keeps the appended entries in memory. Several Stores can use it one after the other."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}  # kept when a plane is deleted
        self._objects: dict[str, dict[ObjectKey, tuple[int, bytes]]] = {}

    def set_planes(self, planes: Mapping[str, LoadedPlane]) -> None:
        """Set the content of these planes."""
        for name, plane in planes.items():
            self._versions[name] = plane.version
            if not plane.deleted:
                self._objects[name] = dict(plane.objects)

    def copy(self) -> MemoryJournal:
        """Return an independent journal with the same content."""
        copied = MemoryJournal()
        copied._versions = dict(self._versions)
        copied._objects = {plane: dict(objects) for plane, objects in self._objects.items()}
        return copied

    def restore(self, plane: str, backup: MemoryJournal) -> None:
        """Replace the objects of a plane by those of the backup.

        The version of the plane increases, so that clients with a version from before list again.
        """
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
