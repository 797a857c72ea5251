"""A journal in memory: for tests, and as the disk of a simulated machine that survives crashes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datum_compute.store.journal import (
    Change,
    Entry,
    LoadedPlane,
    ObjectKey,
    PlaneCreated,
    PlaneDeleted,
)


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
