"""Metadata of an object: what a caller may say, what only the server says, and in which order.

Callers own name, labels, annotations, finalizers and owners. The server owns uid, versions,
generation and times; what callers send there is ignored, or is a precondition. Field owners
(managedFields) are kept by ``tracking.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from datum_compute.api.errors import BadRequest, Cause, shorten
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json, to_json
from datum_compute.api.meta.names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    path_segment_problem,
    qualified_name_problem,
)
from datum_compute.api.meta.objects import KindInfo, ObjectMeta
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.rbac import RBAC_GROUP
from datum_compute.api.schema.keywords import is_date_time
from datum_compute.server.discovery.resources import is_namespace
from datum_compute.server.encoding.body import json_type
from datum_compute.server.encoding.responses import field_error

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


class RequestMetadata(msgspec.Struct, frozen=True):
    """Metadata as a caller sent it: types checked, unknown fields apart."""

    name: str
    namespace: str
    uid: str
    version: str
    fields: JsonObject  # those that belong to the caller
    unknown: tuple[str, ...]


def read_metadata(obj: JsonObject, stored: JsonObject | None = None) -> RequestMetadata:
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
        checked = to_json(from_json(given, ObjectMeta))
    except DecodeError as error:
        raise BadRequest(
            f"metadata cannot be read: {str(error).replace('$', 'metadata')}"
        ) from error
    _check_ignored(given)
    unknown = [name for name in raw if name not in _ORDER and name not in _DROPPED]
    return _incoming(checked, tuple(f"metadata.{name}" for name in unknown))


def _incoming(checked: JsonObject, unknown: tuple[str, ...] = ()) -> RequestMetadata:
    return RequestMetadata(
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
    found = shorten(value) if isinstance(value, str) else json_type(value)
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
    kind: KindInfo[Any],
    incoming: RequestMetadata,
    *,
    name: str,
    namespace: str,
    uid: str,
    now: float,
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


def updated_metadata(incoming: RequestMetadata, old: JsonObject) -> JsonObject:
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


# --- The form of names, labels, annotations and finalizers, each error with its field


ANNOTATIONS_BYTES_MAX = 256 * 1024
FINALIZERS_MAX = 1000
_UTF8_BYTES_MAX = 4  # of a character


def name_problem(kind: KindInfo[Any], name: str) -> str:
    """Why the name of an object is not valid, or the empty string."""
    if is_namespace(kind):
        return dns_label_problem(name)
    if kind.group == RBAC_GROUP:
        return path_segment_problem(name)
    return dns_subdomain_problem(name)


def metadata_problems(kind: KindInfo[Any], metadata: JsonObject) -> Iterator[Cause]:
    """Everything that is wrong in metadata whose types are right."""
    name = metadata.get("name", "")
    if problem := name_problem(kind, name):
        yield field_error("metadata.name", name, problem)
    for key, value in metadata.get("labels", {}).items():
        if problem := qualified_name_problem(key):
            yield field_error("metadata.labels", key, problem)
        if problem := label_value_problem(value):
            yield field_error("metadata.labels", value, problem)
    if annotations := metadata.get("annotations"):
        yield from _annotation_problems(annotations)
    if finalizers := metadata.get("finalizers"):
        yield from _finalizer_problems(finalizers)
    if owners := metadata.get("ownerReferences"):
        yield from _owner_problems(owners)


def _annotation_problems(annotations: dict[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            yield field_error("metadata.annotations", key, problem)
    characters = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if characters * _UTF8_BYTES_MAX <= ANNOTATIONS_BYTES_MAX:
        return
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_BYTES_MAX:
        yield Cause(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes in total, got {size}",
        )


def _finalizer_problems(finalizers: list[str]) -> Iterator[Cause]:
    if len(finalizers) > FINALIZERS_MAX:
        why = f"must have at most {FINALIZERS_MAX} items"
        yield Cause(
            "metadata.finalizers", "FieldValueTooMany", f"Too many: {len(finalizers)}: {why}"
        )
        return
    for finalizer in finalizers:
        if problem := qualified_name_problem(finalizer):
            yield field_error("metadata.finalizers", finalizer, problem)


def _owner_problems(owners: list[JsonObject]) -> Iterator[Cause]:
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield Cause(
                    f"metadata.ownerReferences[{index}].{field}",
                    "FieldValueRequired",
                    "Required value: must not be empty",
                )
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        yield field_error(
            "metadata.ownerReferences", str(len(owners)), "only one owner can be the controller"
        )
