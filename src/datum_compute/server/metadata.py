"""Metadata of an object: what a caller may say, what only the server says, and in which order.

Callers own name, labels, annotations, finalizers and owners. The server owns uid, versions,
generation and times; what callers send there is ignored, or is a precondition. Field owners
(managedFields) are kept by ``tracking.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from datum_compute.api.codec import DecodeError, JsonObject, plain, typed
from datum_compute.api.errors import BadRequest
from datum_compute.api.meta import KindInfo, ObjectMeta
from datum_compute.api.timestamps import timestamp
from datum_compute.server.document import json_type

_ORDER = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)
_OF_CALLER = ("generateName", "labels", "annotations", "ownerReferences", "finalizers")
_OF_SERVER = tuple(field for field in _ORDER if field not in _OF_CALLER)
_DROPPED = ("selfLink",)
_TEXTS = frozenset({"name", "generateName", "namespace"})
_TEXT_MAPS = frozenset({"labels", "annotations"})


class Incoming(msgspec.Struct, frozen=True):
    """Metadata as a caller sent it: types checked, unknown fields apart."""

    name: str
    namespace: str
    uid: str
    version: str
    fields: JsonObject  # those that belong to the caller
    unknown: tuple[str, ...]


def read_metadata(obj: JsonObject) -> Incoming:
    raw = obj.get("metadata")
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise BadRequest(f"metadata must be an object, not {json_type(raw)}")
    given = {name: value for name, value in raw.items() if value is not None}
    try:
        checked = given if _is_simple(given) else plain(typed(given, ObjectMeta))
    except DecodeError as error:
        raise BadRequest(
            f"metadata cannot be read: {str(error).replace('$', 'metadata')}"
        ) from error
    unknown = [name for name in raw if name not in _ORDER and name not in _DROPPED]
    return Incoming(
        name=checked.get("name", ""),
        namespace=checked.get("namespace", ""),
        uid=checked.get("uid", ""),
        version=checked.get("resourceVersion", ""),
        fields={name: checked[name] for name in _OF_CALLER if name in checked},
        unknown=tuple(f"metadata.{name}" for name in unknown),
    )


def _is_simple(given: JsonObject) -> bool:
    """Whether there are only names, labels and annotations, all texts and none of them empty: what
    most creates say, and nothing that reading it as ObjectMeta would change."""
    for name, value in given.items():
        if name in _TEXT_MAPS:
            if type(value) is not dict or not value:
                return False
            for text in value.values():
                if type(text) is not str:
                    return False
        elif name not in _TEXTS or type(value) is not str or not value:
            return False
    return True


def created_metadata(
    kind: KindInfo[Any], incoming: Incoming, *, name: str, namespace: str, uid: str, now: float
) -> JsonObject:
    metadata = {"name": name, "uid": uid, "creationTimestamp": timestamp(now), **incoming.fields}
    if namespace:
        metadata["namespace"] = namespace
    if kind.has_generation:
        metadata["generation"] = 1
    return ordered(metadata)


def updated_metadata(incoming: Incoming, old: JsonObject) -> JsonObject:
    kept = {name: old[name] for name in _OF_SERVER if name in old}
    return ordered({**kept, **incoming.fields})


def terminating_metadata(kind: KindInfo[Any], old: JsonObject, now: float) -> JsonObject:
    marks = {"deletionTimestamp": timestamp(now), "deletionGracePeriodSeconds": 0}
    return with_next_generation(kind, {**old, **marks})


def with_next_generation(kind: KindInfo[Any], metadata: JsonObject) -> JsonObject:
    if not kind.has_generation:
        return ordered(metadata)
    return ordered({**metadata, "generation": metadata.get("generation", 0) + 1})


def ordered(metadata: JsonObject) -> JsonObject:
    """The same metadata in the order people expect to read it."""
    return {name: metadata[name] for name in _ORDER if name in metadata}
