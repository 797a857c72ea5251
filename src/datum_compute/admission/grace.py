"""A deprecated instance type stays usable for a while before it can be disabled.

The time counts from ``status.deprecatedAt``, which a controller writes. Copies of a type carry no
such time: what operators decided about the original holds for them at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.questions import Answers, Question, Write
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp

DEPRECATION_GRACE_S = 1440 * 3600.0
_FIELD = "spec.lifecycle.phase"


def asks_nothing(_write: Write) -> Iterable[Question]:
    return ()


def grace_has_passed(write: Write, _answers: Answers) -> Iterable[Cause]:
    if write.old is None or not write.changes_spec:
        return
    if write.new["spec"]["lifecycle"]["phase"] != "Disabled":
        return
    since_s = _deprecated_since(write.old)
    if since_s is not None and write.now_s < since_s + write.deprecation_grace_s:
        from_then_on = timestamp(since_s + write.deprecation_grace_s)
        why = f"deprecated since {timestamp(since_s)}; it can be disabled from {from_then_on} on"
        yield Cause(_FIELD, "FieldValueForbidden", f'Forbidden: "Disabled": {why}')


def _deprecated_since(instance_type: JsonObject) -> float | None:
    since = instance_type.get("status", {}).get("deprecatedAt")
    if instance_type["spec"].get("lifecycle", {}).get("phase") != "Deprecated" or not since:
        return None
    try:
        return parse_timestamp(since)
    except ValueError:
        return None  # whoever wrote that, it is no time
