"""One object as the store keeps it: bytes, and the few fields that lists and clean-up ask for."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from datum_compute.api.meta.codec import JsonObject, decode_as
from datum_compute.store.journal import ObjectKey

_NO_LABELS: Mapping[str, str] = {}


class _IndexedOwner(msgspec.Struct, frozen=True):
    uid: str = ""


class _IndexedMeta(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    labels: dict[str, str] = {}
    owner_references: list[_IndexedOwner] = []
    finalizers: list[str] = []
    deletion_timestamp: str | None = None


class _Indexed(msgspec.Struct, frozen=True):
    metadata: _IndexedMeta = _IndexedMeta()


class Record(msgspec.Struct, frozen=True, gc=False):
    """The garbage collector need not traverse records: they refer to nothing that refers back."""

    key: ObjectKey
    version: int
    body: bytes
    uid: str
    labels: Mapping[str, str]
    owners: tuple[str, ...] = ()  # uids
    finalizers: tuple[str, ...] = ()
    terminating: bool = False


def record_of(key: ObjectKey, version: int, body: bytes, metadata: JsonObject) -> Record:
    """The record of a body whose metadata is at hand and will not be changed any more."""
    owners = metadata.get("ownerReferences")
    return Record(
        key,
        version,
        body,
        metadata.get("uid", ""),
        metadata.get("labels", _NO_LABELS),
        tuple([owner.get("uid", "") for owner in owners]) if owners else (),
        tuple(metadata.get("finalizers", ())),
        "deletionTimestamp" in metadata,
    )


def indexed(key: ObjectKey, version: int, body: bytes) -> Record:
    """The record of a body; only a part of its metadata is looked at."""
    metadata = decode_as(body, _Indexed).metadata
    return Record(
        key,
        version,
        body,
        metadata.uid,
        metadata.labels,
        tuple(owner.uid for owner in metadata.owner_references),
        tuple(metadata.finalizers),
        metadata.deletion_timestamp is not None,
    )
