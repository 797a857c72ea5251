"""Metadata of objects: which fields callers and the server set, and their validation.

Callers set name, labels, annotations, finalizers and owner references. The server sets uid,
versions, generation and times; values that callers send there are ignored, or are preconditions.
``server/apply`` maintains managedFields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from datum_compute.api.errors import BadRequest, Cause, shorten
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json, to_json
from datum_compute.api.meta.names import (
    label_value_problem,
    qualified_name_problem,
)
from datum_compute.api.meta.objects import KindInfo, ObjectMeta
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.schema.keywords import is_date_time
from datum_compute.server.encoding.body import json_type

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
_CALLER_FIELDS = ("generateName", "labels", "annotations", "ownerReferences", "finalizers")
_SERVER_FIELDS = tuple(field for field in _ORDER if field not in _CALLER_FIELDS)
_KNOWN_FIELDS = frozenset({*_ORDER, "selfLink"})  # selfLink is ignored
# Fields of the server whose types are checked although their values are ignored.
_CHECKED_SERVER_FIELDS = frozenset(
    {"creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"}
)


class RequestMetadata(msgspec.Struct, frozen=True):
    """Metadata that a caller sent, with valid types. ``unknown`` has the paths of unknown
    fields."""

    name: str
    namespace: str
    uid: str
    version: str
    fields: JsonObject  # those that callers set
    unknown: tuple[str, ...]


def read_metadata(obj: JsonObject) -> RequestMetadata:
    """Decode the metadata of a request. Raise BadRequest for a field with an invalid type."""
    raw = obj.get("metadata")
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise BadRequest(f"metadata must be an object, not {json_type(raw)}")
    given = raw
    if None in raw.values():
        given = {name: value for name, value in raw.items() if value is not None}
    try:
        checked = to_json(from_json(given, ObjectMeta))
    except DecodeError as error:
        raise BadRequest(
            f"metadata cannot be read: {str(error).replace('$', 'metadata')}"
        ) from error
    if not _CHECKED_SERVER_FIELDS.isdisjoint(given):
        _check_server_fields(given)
    unknown: tuple[str, ...] = ()
    if not _KNOWN_FIELDS.issuperset(raw):
        unknown = tuple(f"metadata.{name}" for name in raw if name not in _KNOWN_FIELDS)
    return RequestMetadata(
        checked.get("name", ""),
        checked.get("namespace", ""),
        checked.get("uid", ""),
        checked.get("resourceVersion", ""),
        {name: checked[name] for name in _CALLER_FIELDS if name in checked},
        unknown,
    )


def _check_server_fields(given: JsonObject) -> None:
    """Raise BadRequest for fields of the server with an invalid type."""
    for name in ("creationTimestamp", "deletionTimestamp"):
        time = given.get(name)
        if time is not None and not (isinstance(time, str) and is_date_time(time)):
            raise _type_error(f"metadata.{name}", "a time such as 2026-01-31T12:00:00Z", time)
    seconds = given.get("deletionGracePeriodSeconds", 0)
    if type(seconds) is not int:
        raise _type_error("metadata.deletionGracePeriodSeconds", "a whole number", seconds)
    if not isinstance(given.get("selfLink", ""), str):
        raise _type_error("metadata.selfLink", "a string", given["selfLink"])


def _type_error(field: str, wanted: str, value: Any) -> BadRequest:
    found = shorten(value) if isinstance(value, str) else json_type(value)
    return BadRequest(f"metadata cannot be read: {field} must be {wanted}, not {found}")


def build_metadata(
    kind: KindInfo[Any],
    sent: RequestMetadata,
    *,
    name: str,
    namespace: str,
    uid: str,
    now: float,
) -> JsonObject:
    metadata: JsonObject = {"name": name}  # in the order of ``order_metadata``
    if "generateName" in sent.fields:
        metadata["generateName"] = sent.fields["generateName"]
    if namespace:
        metadata["namespace"] = namespace
    metadata["uid"] = uid
    if kind.has_generation:
        metadata["generation"] = 1
    metadata["creationTimestamp"] = timestamp(now)
    return {**metadata, **sent.fields}


def update_metadata(sent: RequestMetadata, old: JsonObject) -> JsonObject:
    kept = {name: old[name] for name in _SERVER_FIELDS if name in old}
    return order_metadata({**kept, **sent.fields})


def mark_deleted_metadata(kind: KindInfo[Any], old: JsonObject, now: float) -> JsonObject:
    marks = {"deletionTimestamp": timestamp(now), "deletionGracePeriodSeconds": 0}
    return with_next_generation(kind, {**old, **marks})


def with_next_generation(kind: KindInfo[Any], metadata: JsonObject) -> JsonObject:
    if not kind.has_generation:
        return order_metadata(metadata)
    return order_metadata({**metadata, "generation": metadata.get("generation", 0) + 1})


def order_metadata(metadata: JsonObject) -> JsonObject:
    """Return the metadata in the order in which kubectl shows it."""
    return {name: metadata[name] for name in _ORDER if name in metadata}


# --- Validation of names, labels, annotations, finalizers and owner references


ANNOTATIONS_BYTES_MAX = 256 * 1024
FINALIZERS_MAX = 1000
_UTF8_BYTES_MAX = 4  # of a character


def metadata_problems(name_problem: Callable[[str], str], metadata: JsonObject) -> Iterator[Cause]:
    """Yield the errors of metadata with valid types. ``name_problem`` is that of the resource."""
    name = metadata.get("name", "")
    if problem := name_problem(name):
        yield Cause.invalid("metadata.name", problem, name)
    for key, value in metadata.get("labels", {}).items():
        if problem := qualified_name_problem(key):
            yield Cause.invalid("metadata.labels", problem, key)
        if problem := label_value_problem(value):
            yield Cause.invalid("metadata.labels", problem, value)
    if annotations := metadata.get("annotations"):
        yield from _annotation_problems(annotations)
    if finalizers := metadata.get("finalizers"):
        yield from _finalizer_problems(finalizers)
    if owners := metadata.get("ownerReferences"):
        yield from _owner_problems(owners)


def _annotation_problems(annotations: dict[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            yield Cause.invalid("metadata.annotations", problem, key)
    characters = sum(map(len, annotations)) + sum(map(len, annotations.values()))
    if characters * _UTF8_BYTES_MAX <= ANNOTATIONS_BYTES_MAX:
        return
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_BYTES_MAX:
        why = f"may not be more than {ANNOTATIONS_BYTES_MAX} bytes in total, got {size}"
        yield Cause.too_long("metadata.annotations", why)


def _finalizer_problems(finalizers: list[str]) -> Iterator[Cause]:
    if len(finalizers) > FINALIZERS_MAX:
        why = f"must have at most {FINALIZERS_MAX} items"
        yield Cause.too_many("metadata.finalizers", why, len(finalizers))
        return
    for finalizer in finalizers:
        if problem := qualified_name_problem(finalizer):
            yield Cause.invalid("metadata.finalizers", problem, finalizer)


def _owner_problems(owners: list[JsonObject]) -> Iterator[Cause]:
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                path = f"metadata.ownerReferences[{index}].{field}"
                yield Cause.required(path, "must not be empty")
    if sum(1 for owner in owners if owner.get("controller")) > 1:
        why = "only one owner can be the controller"
        yield Cause.invalid("metadata.ownerReferences", why, str(len(owners)))
