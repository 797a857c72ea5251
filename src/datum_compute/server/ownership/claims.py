"""The managedFields that a caller sends: an empty list or one empty entry forgets all owners,
anything else must be entries as the server itself writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.server.apply.field_set import MEMBER, SELF, FieldSet
from datum_compute.server.apply.field_shape import canonical_text
from datum_compute.server.apply.managed_fields import (
    APPLY,
    FIELDS_TYPE,
    NAME_LENGTH_MAX,
    UPDATE,
    Entries,
)

ENTRIES_MAX = 1000
_BRACKETS_MAX = 32
_TEXTS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)", re.ASCII)
_FIELD = "metadata.managedFields"


def is_reset(sent: Any) -> bool:
    return sent in ([], [{}])


def claim_problems(sent: Any) -> Iterator[Cause]:
    """Everything that is wrong with the entries of a caller."""
    if not isinstance(sent, list) or len(sent) > ENTRIES_MAX:
        yield _invalid(_FIELD, f"must be a list of at most {ENTRIES_MAX} entries")
        return
    for index, entry in enumerate(sent):
        yield from _entry_problems(entry, f"{_FIELD}[{index}]")


def read_claims(sent: Entries) -> Entries:
    """Entries without problems, their steps spelled as the server spells them."""
    return [
        {
            **{field: entry[field] for field in _TEXTS if entry.get(field)},
            "fieldsV1": _respelled(entry["fieldsV1"]),
        }
        for entry in sent
        if entry.get("fieldsV1")
    ]


def _entry_problems(entry: Any, path: str) -> Iterator[Cause]:
    if not isinstance(entry, dict):
        yield _invalid(path, "must be an object")
        return
    for field in _TEXTS:
        if not isinstance(entry.get(field) or "", str):
            yield _invalid(f"{path}.{field}", "must be a string")
            return
    if entry.get("operation") not in (APPLY, UPDATE):
        yield _invalid(f"{path}.operation", f"must be `{APPLY}` or `{UPDATE}`")
    if entry.get("fieldsType") != FIELDS_TYPE:
        yield _invalid(f"{path}.fieldsType", f"must be `{FIELDS_TYPE}`")
    if not entry.get("apiVersion"):
        yield _invalid(f"{path}.apiVersion", "must not be empty")
    if len(entry.get("manager") or "") > NAME_LENGTH_MAX:
        yield _invalid(f"{path}.manager", f"must be at most {NAME_LENGTH_MAX} characters")
    if entry.get("time") and not _is_time(entry["time"]):
        yield _invalid(f"{path}.time", "must be a time such as 2024-01-31T12:00:00Z")
    fields = entry.get("fieldsV1", {})
    if not isinstance(fields, dict) or not _is_set(fields) or SELF in fields:
        yield _invalid(f"{path}.fieldsV1", "must be a set of fields: keys f:, k:, v:, i: and .")


def _is_set(fields: JsonObject) -> bool:
    return all(
        isinstance(node, dict) and (_is_step(step) if step != SELF else not node) and _is_set(node)
        for step, node in fields.items()
    )


def _is_step(step: str) -> bool:
    prefix, text = step[:2], step[2:]
    if prefix == "f:":
        return True
    if prefix == "i:":
        return text.isdecimal()
    if text.count("[") + text.count("{") > _BRACKETS_MAX:
        return False
    try:
        value = decode(text.encode())
    except (DecodeError, UnicodeEncodeError):
        return False
    return prefix == "v:" or (prefix == "k:" and isinstance(value, dict) and bool(value))


def _is_time(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return _TIME.fullmatch(text) is not None


def _respelled(fields: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for step, node in fields.items():
        spelled = step
        if step[:2] in ("k:", "v:"):
            spelled = step[:2] + canonical_text(decode(step[2:].encode()))
        result[spelled] = _respelled(node) if node else MEMBER
    return result


def _invalid(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {why}")
