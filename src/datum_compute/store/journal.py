"""What makes writes durable. A batch is on disk as a whole, or not at all.

A journal is used by one Store at a time and appends one batch after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
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
