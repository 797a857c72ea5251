"""Rules for InstanceTypes: new ones are offered, and one that goes names what to use instead.

How long a type stays deprecated is the business of ``grace.py``; whether the replacement exists and
is offered itself is said by a controller, as a condition.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.findings import one_step_forward
from datum_compute.admission.questions import Answers, Question, Removal, Write
from datum_compute.admission.rules.workload_references import TYPES
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp

_PHASE, _REPLACEMENT = "spec.lifecycle.phase", "spec.lifecycle.replacementInstanceType"


def _phase(obj: JsonObject) -> str:
    return str(obj["spec"]["lifecycle"]["phase"])


phase_goes_forward = one_step_forward(_PHASE, ("Active", "Deprecated", "Disabled"), _phase)


def a_new_one_is_active(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is None and _phase(new) != "Active":
        why = "must be Active in a new instance type"
        yield Cause(_PHASE, "FieldValueInvalid", f'Invalid value: "{_phase(new)}": {why}')


def replacement_is_named(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    replacement = new["spec"]["lifecycle"].get("replacementInstanceType", "")
    if replacement and replacement == new["metadata"].get("name"):
        why = "an instance type cannot replace itself"
        yield Cause(_REPLACEMENT, "FieldValueInvalid", f'Invalid value: "{replacement}": {why}')
    if _phase(new) != "Active" and not replacement:
        why = f"name the instance type to use instead of one that is {_phase(new)}"
        yield Cause(_REPLACEMENT, "FieldValueRequired", f"Required value: {why}")


# --- A deprecated instance type stays usable for a while before it can be disabled
# The time counts from ``status.deprecatedAt``, which a controller writes. Copies of a type carry no
# such time: what operators decided about the original holds for them at once.


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


# --- An instance type goes when it is no longer offered: after Deprecated and Disabled
# What the catalogue offers decides, so the rule holds for the original and for its copies, and
# those who keep the copies need no right of their own: a copy whose original is gone, or that has
# amounts
# which the original has not, is nobody's offer.


_NEXT = {
    "Active": "set it to Deprecated and name a replacementInstanceType",
    "Deprecated": "set it to Disabled when the grace period is over",
}


def asks_for_the_catalogue(_removal: Removal) -> Iterable[Question]:
    yield TYPES


def type_is_retired(removal: Removal, answers: Answers) -> Iterable[Cause]:
    name, resources = removal.old["metadata"].get("name"), removal.old["spec"]["resources"]
    for offered in answers.listed[TYPES]:
        if offered["metadata"]["name"] != name or offered["spec"]["resources"] != resources:
            continue
        phase = _phase_of(offered)
        if phase in _NEXT:
            why = (
                f'"{phase}": workloads may still ask for this instance type; {_NEXT[phase]}, and '
                "delete it once it is Disabled"
            )
            yield Cause(_FIELD, "FieldValueForbidden", f"Forbidden: {why}")


def _phase_of(instance_type: JsonObject) -> str:
    return str(instance_type["spec"].get("lifecycle", {}).get("phase", "Active"))
