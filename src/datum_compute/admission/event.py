"""Rules for Events, in the words of either group that serves them.

An event with an eventTime is of the newer kind and says who reports it; an older one only has to
lie in the namespace of the object it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datum_compute.admission.times import with_times
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.names import qualified_name_problem

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
