"""Rules for InstanceTypes: phases, replacement, grace period and deletion.

A new type is Active. A Deprecated or Disabled type names its replacement. A controller reports as a
condition whether the replacement exists and is offered.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.findings import phase_order_rule
from datum_compute.admission.queries import Answers, Deletion, Query, Write
from datum_compute.admission.rules.workload_references import TYPES
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp

_PHASE, _REPLACEMENT = "spec.lifecycle.phase", "spec.lifecycle.replacementInstanceType"


def _phase(obj: JsonObject) -> str:
    return str(obj["spec"]["lifecycle"]["phase"])


check_phase_order = phase_order_rule(_PHASE, ("Active", "Deprecated", "Disabled"), _phase)


def check_initial_phase(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    if old is None and _phase(new) != "Active":
        why = "must be Active in a new instance type"
        yield Cause.invalid(_PHASE, why, _phase(new))


def check_replacement(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    replacement = new["spec"]["lifecycle"].get("replacementInstanceType", "")
    if replacement and replacement == new["metadata"].get("name"):
        why = "an instance type cannot replace itself"
        yield Cause.invalid(_REPLACEMENT, why, replacement)
    if _phase(new) != "Active" and not replacement:
        why = f"name the instance type to use instead of one that is {_phase(new)}"
        yield Cause.required(_REPLACEMENT, why)


# --- Grace period: a Deprecated type remains usable for some time before it can be Disabled
# The time starts at ``status.deprecatedAt``, which a controller writes. Copies of a type do not
# have that time, so a copy can be Disabled together with its original.


DEPRECATION_GRACE_S = 1440 * 3600.0
_FIELD = "spec.lifecycle.phase"


def check_grace_period(write: Write, _answers: Answers) -> Iterable[Cause]:
    if write.old is None or not write.changes_spec:
        return
    if write.new["spec"]["lifecycle"]["phase"] != "Disabled":
        return
    since_s = _deprecated_since(write.old)
    if since_s is not None and write.now_s < since_s + write.deprecation_grace_s:
        earliest = timestamp(since_s + write.deprecation_grace_s)
        why = f"deprecated since {timestamp(since_s)}; it can be disabled from {earliest} on"
        yield Cause.forbidden(_FIELD, f'"Disabled": {why}')


def _deprecated_since(instance_type: JsonObject) -> float | None:
    since = instance_type.get("status", {}).get("deprecatedAt")
    if instance_type["spec"].get("lifecycle", {}).get("phase") != "Deprecated" or not since:
        return None
    try:
        return parse_timestamp(since)
    except ValueError:
        return None  # not a valid time


# --- Deletion: a type can be deleted after it is Disabled
# The catalogue decides, so that the rule applies to originals and to copies. A copy can be deleted
# if the catalogue has no such type, or one with other amounts.


_NEXT_STEPS = {
    "Active": "set it to Deprecated and name a replacementInstanceType",
    "Deprecated": "set it to Disabled when the grace period is over",
}


def query_catalogue(_deletion: Deletion) -> Iterable[Query]:
    yield TYPES


def check_type_disabled(deletion: Deletion, answers: Answers) -> Iterable[Cause]:
    old = deletion.old
    name, resources = old["metadata"].get("name"), old["spec"]["resources"]
    for offered in answers.listed[TYPES]:
        if offered["metadata"]["name"] != name or offered["spec"]["resources"] != resources:
            continue
        phase = _phase_of(offered)
        if phase in _NEXT_STEPS:
            why = (
                f'"{phase}": workloads can still use this instance type; {_NEXT_STEPS[phase]}, and '
                "delete it once it is Disabled"
            )
            yield Cause.forbidden(_FIELD, why)


def _phase_of(instance_type: JsonObject) -> str:
    return str(instance_type["spec"].get("lifecycle", {}).get("phase", "Active"))
