"""The form of names, labels, annotations and finalizers, each error with its field."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.meta import KindInfo
from datum_compute.api.role import RBAC_GROUP
from datum_compute.server.catalogue import is_namespace
from datum_compute.server.problems import field_error

NAME_MAX, LABEL_MAX = 253, 63
ANNOTATIONS_BYTES_MAX = 256 * 1024

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_PATH_SEGMENT = re.compile(r"[^/%\s\x00-\x1f\x7f]{1,253}")  # as in system:discovery
_SEGMENT_RULE = "must be 1 to 253 characters, not '.' or '..', without '/', '%' or white space"
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def name_problem(kind: KindInfo[Any], name: str) -> str:
    """Why the name of an object is not valid, or the empty string."""
    if kind.group == RBAC_GROUP:
        return "" if name not in (".", "..") and _PATH_SEGMENT.fullmatch(name) else _SEGMENT_RULE
    if is_namespace(kind):
        return _too_long(name, LABEL_MAX) or _form(
            _DNS_LABEL, name, "must be lower case letters, digits and inner dashes"
        )
    return _too_long(name, NAME_MAX) or _form(
        _DNS_SUBDOMAIN,
        name,
        "must be a lower case DNS subdomain: letters, digits, '-' and '.', beginning and ending "
        "with a letter or digit",
    )


def qualified_name_problem(name: str) -> str:
    """Why a key (an optional DNS prefix, a slash and a name) is not valid."""
    prefix, slash, part = name.rpartition("/")
    if slash and (len(prefix) > NAME_MAX or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return "the part before the slash must be a DNS subdomain"
    return _too_long(part, LABEL_MAX) or _form(
        _NAME_PART,
        part,
        "the name must be letters, digits, '-', '_' or '.', beginning and ending with a letter "
        "or digit",
    )


def label_value_problem(value: str) -> str:
    if not value:
        return ""
    return _too_long(value, LABEL_MAX) or _form(
        _NAME_PART,
        value,
        "a label value must be letters, digits, '-', '_' or '.', beginning and ending with a "
        "letter or digit",
    )


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
    yield from _annotation_problems(metadata.get("annotations", {}))
    for finalizer in metadata.get("finalizers", ()):
        if problem := qualified_name_problem(finalizer):
            yield field_error("metadata.finalizers", finalizer, problem)
    yield from _owner_problems(metadata.get("ownerReferences", []))


def _annotation_problems(annotations: dict[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            yield field_error("metadata.annotations", key, problem)
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_BYTES_MAX:
        yield Cause(
            "metadata.annotations",
            "FieldValueTooLong",
            f"Too long: may not be more than {ANNOTATIONS_BYTES_MAX} bytes in total, got {size}",
        )


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


def _too_long(text: str, length_max: int) -> str:
    return f"must be no more than {length_max} characters" if len(text) > length_max else ""


def _form(pattern: re.Pattern[str], text: str, rule: str) -> str:
    return "" if pattern.fullmatch(text) else rule
