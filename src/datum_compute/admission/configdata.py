"""Rules that ConfigMaps and Secrets share: the form of keys, the size, and what immutable means."""

from __future__ import annotations

import re
from collections.abc import Iterable

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

BYTES_MAX = 1024 * 1024
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_FIELDS = ("data", "binaryData")


def keys_are_file_names(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Every key may become the name of a file."""
    for field in _FIELDS:
        for key in new.get(field, {}):
            if not _KEY.fullmatch(key) or key in (".", "..") or key.startswith("../"):
                why = "a key must be letters, digits, '-', '_' or '.', at most 253 of them"
                yield Cause(f"{field}[{key[:253]}]", "FieldValueInvalid", f"Invalid value: {why}")


def keys_differ(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for key in new.get("data", {}):
        if key in new.get("binaryData", {}):
            why = "Invalid value: the key is in data already; remove one of them"
            yield Cause(f"binaryData[{key}]", "FieldValueInvalid", why)


def fits_the_limit(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    size = sum(len(value.encode()) for field in _FIELDS for value in new.get(field, {}).values())
    if size > BYTES_MAX:
        why = f"Too long: may not be more than {BYTES_MAX} bytes in total, got {size}"
        yield Cause("data", "FieldValueTooLong", why)


def frozen_stays_frozen(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Once immutable, the data and the flag stay; only deleting the object helps."""
    if old is None or not old.get("immutable"):
        return
    for field in ("immutable", *_FIELDS):
        if new.get(field) != old.get(field):
            why = "Forbidden: field is immutable when `immutable` is set; create another object"
            yield Cause(field, "FieldValueForbidden", why)
