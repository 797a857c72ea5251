"""Record: the body of an object as bytes, and the metadata that lists and cleanup filter by."""

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
    """One object at one version.

    ``gc=False``: the garbage collector does not traverse records, which cannot form cycles.
    """

    key: ObjectKey
    version: int
    body: bytes
    uid: str
    labels: Mapping[str, str]
    owners: tuple[str, ...] = ()  # uids
    finalizers: tuple[str, ...] = ()
    terminating: bool = False


def build_record(key: ObjectKey, version: int, body: bytes, metadata: JsonObject) -> Record:
    """Return the record of a body whose metadata is decoded already.

    The record shares parts of ``metadata``: the caller must not change it afterwards.
    """
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


def decode_record(key: ObjectKey, version: int, body: bytes) -> Record:
    """Return the record of a body. Decodes only the metadata that records contain."""
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
