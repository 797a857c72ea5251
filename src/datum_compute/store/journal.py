"""What makes writes durable. A batch is on disk as a whole, or not at all.

A journal is used by one Store at a time and appends one batch after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class ObjectKey(NamedTuple):
    """Where an object lies inside its plane: ``plural.group``, namespace, name."""

    resource: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Change:
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
    """The plane and everything in it."""

    plane: str


Entry = Change | PlaneCreated | PlaneDeleted


class JournalError(Exception):
    """The batch is not durable (disk full, read-only, I/O error); nothing of it was kept."""


@dataclass(frozen=True, slots=True)
class LoadedPlane:
    """What a plane held when the process last stopped or died."""

    version: int
    objects: dict[ObjectKey, tuple[int, bytes]]


class Journal(Protocol):
    async def load(self) -> dict[str, LoadedPlane]:
        """Everything that is durable, by plane."""
        ...

    async def append(self, batch: Sequence[Entry]) -> None:
        """Return when the batch is durable; raise JournalError when none of it is."""
        ...

    async def close(self) -> None: ...
