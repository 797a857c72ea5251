"""One object as the store keeps it: bytes, and the few fields that lists filter by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.api.codec import decode_as
from datum_compute.store.journal import ObjectKey


class _IndexedMeta(msgspec.Struct, frozen=True):
    uid: str = ""
    labels: dict[str, str] = {}


class _Indexed(msgspec.Struct, frozen=True):
    metadata: _IndexedMeta = _IndexedMeta()


@dataclass(frozen=True, slots=True)
class Record:
    key: ObjectKey
    version: int
    body: bytes
    uid: str
    labels: Mapping[str, str]


def indexed(key: ObjectKey, version: int, body: bytes) -> Record:
    """The record of a body; only uid and labels are looked at."""
    metadata = decode_as(body, _Indexed).metadata
    return Record(key, version, body, metadata.uid, metadata.labels)
