"""Metadata of an object: what a caller may say, what only the server says, and in which order.

Callers own name, labels, annotations, finalizers and owners. The server owns uid, versions,
generation and times; what callers send there is ignored, or is a precondition. Field owners
(managedFields) are kept by ``tracking.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec

from datum_compute.api.errors import BadRequest
from datum_compute.api.formats import is_date_time
from datum_compute.api.meta.codec import DecodeError, JsonObject, plain, typed
from datum_compute.api.meta.objects import KindInfo, ObjectMeta
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.server.encoding.body import json_type
from datum_compute.server.problems import shortened

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
_TEXTS = frozenset({"name", "generateName", "namespace", "uid", "resourceVersion"})
_TEXT_MAPS = frozenset({"labels", "annotations"})
_ONLY_TEXTS = {str}
_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_OWNER_TYPES = (str, str, str, str, bool, bool)
_ABSENT = object()


class Incoming(msgspec.Struct, frozen=True):
    """Metadata as a caller sent it: types checked, unknown fields apart."""

    name: str
    namespace: str
    uid: str
    version: str
    fields: JsonObject  # those that belong to the caller
    unknown: tuple[str, ...]


def read_metadata(obj: JsonObject, stored: JsonObject | None = None) -> Incoming:
    """What a caller says; of a change, what is the very value that is ``stored`` is not looked at
    again."""
    raw = obj.get("metadata")
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise BadRequest(f"metadata must be an object, not {json_type(raw)}")
    if _is_simple(raw, stored or {}):
        return _incoming(raw)
    given = {name: value for name, value in raw.items() if value is not None}
    try:
        checked = plain(typed(given, ObjectMeta))
    except DecodeError as error:
        raise BadRequest(
            f"metadata cannot be read: {str(error).replace('$', 'metadata')}"
        ) from error
    _check_ignored(given)
    unknown = [name for name in raw if name not in _ORDER and name not in _DROPPED]
    return _incoming(checked, tuple(f"metadata.{name}" for name in unknown))


def _incoming(checked: JsonObject, unknown: tuple[str, ...] = ()) -> Incoming:
    return Incoming(
        checked.get("name", ""),
        checked.get("namespace", ""),
        checked.get("uid", ""),
        checked.get("resourceVersion", ""),
        {name: checked[name] for name in _OF_CALLER if name in checked},
        unknown,
    )


def _check_ignored(given: JsonObject) -> None:
    """What the server owns is not taken from callers, but what could not be it is a mistake."""
    for name in ("creationTimestamp", "deletionTimestamp"):
        _check_time(f"metadata.{name}", given.get(name))
    seconds = given.get("deletionGracePeriodSeconds", 0)
    if type(seconds) is not int:
        raise _unreadable("metadata.deletionGracePeriodSeconds", "a whole number", seconds)
    if not isinstance(given.get("selfLink", ""), str):
        raise _unreadable("metadata.selfLink", "a string", given["selfLink"])


def _check_time(field: str, value: Any) -> None:
    if value is not None and not (isinstance(value, str) and is_date_time(value)):
        raise _unreadable(field, "a time such as 2026-01-31T12:00:00Z", value)


def _unreadable(field: str, wanted: str, value: Any) -> BadRequest:
    found = shortened(value) if isinstance(value, str) else json_type(value)
    return BadRequest(f"metadata cannot be read: {field} must be {wanted}, not {found}")


def _is_simple(given: JsonObject, stored: JsonObject) -> bool:
    """Whether there are, besides what is stored, only names, labels, annotations, finalizers and
    owners, none of them empty: what most creates and patches say, and nothing that reading it as
    ObjectMeta would change."""
    for name, value in given.items():
        if value is stored.get(name, _ABSENT):
            continue
        if name in _TEXT_MAPS:
            if type(value) is not dict or set(map(type, value.values())) != _ONLY_TEXTS:
                return False
        elif name == "finalizers":
            if type(value) is not list or set(map(type, value)) != _ONLY_TEXTS:
                return False
        elif name == "ownerReferences":
            if type(value) is not list or not value or not all(map(_is_simple_owner, value)):
                return False
        elif name not in _TEXTS or type(value) is not str or not value:
            return False
    return True


def _is_simple_owner(owner: Any) -> bool:
    """As our controllers write it: the flags, if they are said at all, are set."""
    if type(owner) is not dict or len(owner) < 4 or tuple(owner) != _OWNER[: len(owner)]:
        return False
    said = tuple(owner.values())
    return tuple(map(type, said)) == _OWNER_TYPES[: len(said)] and False not in said[4:]


def created_metadata(
    kind: KindInfo[Any], incoming: Incoming, *, name: str, namespace: str, uid: str, now: float
) -> JsonObject:
    metadata: JsonObject = {"name": name}  # in the order of ``ordered``
    if "generateName" in incoming.fields:
        metadata["generateName"] = incoming.fields["generateName"]
    if namespace:
        metadata["namespace"] = namespace
    metadata["uid"] = uid
    if kind.has_generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = timestamp(now)
    return {**metadata, **incoming.fields}


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
