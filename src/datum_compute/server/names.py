"""The form of names, labels, annotations and finalizers, each error with its field."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_value_problem,
    path_segment_problem,
    qualified_name_problem,
)
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.rbacfields import RBAC_GROUP
from datum_compute.server.discovery.resources import is_namespace
from datum_compute.server.problems import field_error

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
