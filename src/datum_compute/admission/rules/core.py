"""Rules for Secrets, ConfigMaps and Events. Messages never contain the value of a Secret."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from datum_compute.admission.findings import normalize_times
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.api.meta.names import qualified_name_problem

_DOCKER_CONFIG = "kubernetes.io/dockerconfigjson"
_ACCOUNT_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 - the name of a type
_ACCOUNT_NAME = "kubernetes.io/service-account.name"

# Keys that a type requires: all of them, or at least one.
_ALL_OF: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    _DOCKER_CONFIG: (".dockerconfigjson",),
}
_ONE_OF: Mapping[str, tuple[str, ...]] = {"kubernetes.io/basic-auth": ("username", "password")}


def merge_string_data(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Move stringData into data, as base64."""
    if "stringData" not in new:
        return new
    added = {key: base64.b64encode(v.encode()).decode() for key, v in new["stringData"].items()}
    rest = {name: value for name, value in new.items() if name != "stringData"}
    data = {**new.get("data", {}), **added}
    return {**rest, "data": data} if data else rest


def check_type_unchanged(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is not None and new["type"] != old.get("type", new["type"]):
        why = "field is immutable; create another Secret"
        yield Cause.invalid("type", why, new["type"])


def check_keys_of_type(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    data = new.get("data", {})
    for key in _ALL_OF.get(new["type"], ()):
        if key not in data:
            yield Cause.required(f"data[{key}]")
    one_of = _ONE_OF.get(new["type"], ())
    if one_of and not any(key in data for key in one_of):
        yield from (Cause.required(f"data[{key}]") for key in one_of)
    if new["type"] == _ACCOUNT_TOKEN and not new["metadata"].get("annotations", {}).get(
        _ACCOUNT_NAME
    ):
        yield Cause.required(f"metadata.annotations[{_ACCOUNT_NAME}]")


def check_docker_config(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    text = new.get("data", {}).get(".dockerconfigjson")
    if new["type"] != _DOCKER_CONFIG or text is None:
        return
    try:
        decode(base64.b64decode(text))
    except DecodeError:
        why = "<hidden>: must be base64 of a JSON document"
        yield Cause.invalid("data[.dockerconfigjson]", why)


# --- ConfigMaps and Secrets


BYTES_MAX = 1024 * 1024
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_FIELDS = ("data", "binaryData")


def check_key_names(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Keys become file names when the object is mounted."""
    for field in _FIELDS:
        for key in new.get(field, {}):
            if not _KEY.fullmatch(key) or key in (".", "..") or key.startswith("../"):
                why = "a key must be letters, digits, '-', '_' or '.', at most 253 of them"
                yield Cause.invalid(f"{field}[{key[:253]}]", why)


def check_keys_unique(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for key in new.get("data", {}):
        if key in new.get("binaryData", {}):
            why = "the key is in data already; remove one of them"
            yield Cause.invalid(f"binaryData[{key}]", why)


def check_data_size(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    size = sum(len(value.encode()) for field in _FIELDS for value in new.get(field, {}).values())
    if size > BYTES_MAX:
        why = f"may not be more than {BYTES_MAX} bytes in total, got {size}"
        yield Cause.too_long("data", why)


def check_frozen_data(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """The data and the flag of an immutable object cannot change."""
    if old is None or not old.get("immutable"):
        return
    for field in ("immutable", *_FIELDS):
        if new.get(field) != old.get(field):
            why = "field is immutable when `immutable` is set; create another object"
            yield Cause.forbidden(field, why)


# --- Events of both API groups
# An event with an eventTime is in the newer format and names its reporter. An event in the older
# format must only be in the namespace of its object.


_FIELD_CHARS_MAX, _NOTE_CHARS_MAX = 128, 1024
_CLUSTER_SCOPED_NAMESPACES = ("", "default")
_TYPES = ("Normal", "Warning")


@dataclass(frozen=True, slots=True)
class EventFieldNames:
    """The names of the event fields in an API group."""

    regarding: str
    note: str
    controller: str
    first: str
    last: str
    is_new_group: bool


CORE_EVENT_FIELDS = EventFieldNames(
    "involvedObject", "message", "reportingComponent", "firstTimestamp", "lastTimestamp", False
)
NEW_EVENT_FIELDS = EventFieldNames(
    "regarding",
    "note",
    "reportingController",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    True,
)


@dataclass(frozen=True, slots=True)
class EventRules:
    names: EventFieldNames

    def normalize_times(self, new: JsonObject, old: JsonObject | None) -> JsonObject:
        names = self.names
        return normalize_times(
            seconds=[(names.first,), (names.last,)],
            micro=[("eventTime",), ("series", "lastObservedTime")],
        )(new, old)

    def check_namespace(self, new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        """An event is in the namespace of its object, or in ``default`` if that has none."""
        namespace = new["metadata"].get("namespace", "")
        regarding = new.get(self.names.regarding, {}).get("namespace", "")
        allowed: tuple[str, ...] = _CLUSTER_SCOPED_NAMESPACES
        if new.get("eventTime"):
            allowed = (*allowed, "kube-system")
        if (regarding and regarding != namespace) or (not regarding and namespace not in allowed):
            why = "does not match the namespace of the event"
            yield Cause.invalid(f"{self.names.regarding}.namespace", why, regarding)

    def check_reporter(self, new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        names = self.names
        if not new.get("eventTime"):
            if names.is_new_group and old is None:
                yield Cause.required("eventTime")
            return
        controller = new.get(names.controller, "")
        if controller and (problem := qualified_name_problem(controller)):
            yield Cause.invalid(names.controller, problem)
        for field in (names.controller, "reportingInstance", "action", "reason"):
            if not new.get(field):
                yield Cause.required(field)
        for field in ("reportingInstance", "action", "reason"):
            yield from _too_long(field, new.get(field, ""), _FIELD_CHARS_MAX)
        yield from _too_long(names.note, new.get(names.note, ""), _NOTE_CHARS_MAX)
        if names.is_new_group and new.get("type") not in _TYPES:
            yield Cause.unsupported("type", new.get("type", ""), _TYPES)


def _too_long(field: str, text: str, length_max: int) -> Iterable[Cause]:
    if len(text) > length_max:
        why = f"can have at most {length_max} characters"
        yield Cause.invalid(field, why)
