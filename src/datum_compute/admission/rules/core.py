"""Rules for Secrets: stringData moves into data, the type stays, and each type has its keys.

No message ever repeats a value.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from datum_compute.admission.findings import with_times
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.api.meta.names import qualified_name_problem

_DOCKER_CONFIG = "kubernetes.io/dockerconfigjson"
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
_ACCOUNT_NAME = "kubernetes.io/service-account.name"

# Keys that all must, or of which one must, be there.
_ALL_OF: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    _DOCKER_CONFIG: (".dockerconfigjson",),
}
_ONE_OF: Mapping[str, tuple[str, ...]] = {"kubernetes.io/basic-auth": ("username", "password")}


def with_string_data_merged(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """What is written as text is stored as base64; it is never read back as text."""
    if "stringData" not in new:
        return new
    added = {key: base64.b64encode(v.encode()).decode() for key, v in new["stringData"].items()}
    rest = {name: value for name, value in new.items() if name != "stringData"}
    data = {**new.get("data", {}), **added}
    return {**rest, "data": data} if data else rest


def type_is_immutable(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is not None and new["type"] != old.get("type", new["type"]):
        why = f'Invalid value: "{new["type"]}": field is immutable; create another Secret'
        yield Cause("type", "FieldValueInvalid", why)


def has_the_keys_of_its_type(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    data = new.get("data", {})
    for key in _ALL_OF.get(new["type"], ()):
        if key not in data:
            yield _required(f"data[{key}]")
    one_of = _ONE_OF.get(new["type"], ())
    if one_of and not any(key in data for key in one_of):
        yield from (_required(f"data[{key}]") for key in one_of)
    if new["type"] == _ACCOUNT_TOKEN and not new["metadata"].get("annotations", {}).get(
        _ACCOUNT_NAME
    ):
        yield _required(f"metadata.annotations[{_ACCOUNT_NAME}]")


def docker_config_is_json(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    text = new.get("data", {}).get(".dockerconfigjson")
    if new["type"] != _DOCKER_CONFIG or text is None:
        return
    try:
        decode(base64.b64decode(text))
    except DecodeError:
        why = "Invalid value: <hidden>: must be base64 of a JSON document"
        yield Cause("data[.dockerconfigjson]", "FieldValueInvalid", why)


def _required(field: str) -> Cause:
    return Cause(field, "FieldValueRequired", "Required value")


# --- Rules that ConfigMaps and Secrets share: the form of keys, the size, and what immutable means


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


# --- Rules for Events, in the words of either group that serves them
# An event with an eventTime is of the newer kind and says who reports it; an older one only has to
# lie in the namespace of the object it is about.


_PART_MAX, _NOTE_MAX = 128, 1024
_SPARE_NAMESPACES = ("", "default")
_TYPES = ("Normal", "Warning")


@dataclass(frozen=True, slots=True)
class Words:
    """What a group calls the fields of an event."""

    regarding: str
    note: str
    controller: str
    first: str
    last: str
    is_new_group: bool


CORE = Words(
    "involvedObject", "message", "reportingComponent", "firstTimestamp", "lastTimestamp", False
)
NEW = Words(
    "regarding",
    "note",
    "reportingController",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    True,
)


@dataclass(frozen=True, slots=True)
class EventRules:
    words: Words

    def with_times(self, new: JsonObject, old: JsonObject | None) -> JsonObject:
        words = self.words
        return with_times(
            seconds=[(words.first,), (words.last,)],
            micro=[("eventTime",), ("series", "lastObservedTime")],
        )(new, old)

    def lies_with_its_object(self, new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        """An event about an object without a namespace lies in ``default``."""
        namespace = new["metadata"].get("namespace", "")
        about = new.get(self.words.regarding, {}).get("namespace", "")
        spare = (*_SPARE_NAMESPACES, "kube-system") if new.get("eventTime") else _SPARE_NAMESPACES
        if (about and about != namespace) or (not about and namespace not in spare):
            why = f'Invalid value: "{about}": does not match the namespace of the event'
            yield Cause(f"{self.words.regarding}.namespace", "FieldValueInvalid", why)

    def says_who_reports(self, new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        words = self.words
        if not new.get("eventTime"):
            if words.is_new_group and old is None:
                yield Cause("eventTime", "FieldValueRequired", "Required value")
            return
        controller = new.get(words.controller, "")
        if controller and (problem := qualified_name_problem(controller)):
            yield Cause(words.controller, "FieldValueInvalid", f"Invalid value: {problem}")
        for field in (words.controller, "reportingInstance", "action", "reason"):
            if not new.get(field):
                yield Cause(field, "FieldValueRequired", "Required value")
        for field in ("reportingInstance", "action", "reason"):
            yield from _too_long(field, new.get(field, ""), _PART_MAX)
        yield from _too_long(words.note, new.get(words.note, ""), _NOTE_MAX)
        if words.is_new_group and new.get("type") not in _TYPES:
            listed = ", ".join(f'"{t}"' for t in _TYPES)
            why = f"Unsupported value: supported values: {listed}"
            yield Cause("type", "FieldValueNotSupported", why)


def _too_long(field: str, text: str, length_max: int) -> Iterable[Cause]:
    if len(text) > length_max:
        why = f"Invalid value: can have at most {length_max} characters"
        yield Cause(field, "FieldValueInvalid", why)
