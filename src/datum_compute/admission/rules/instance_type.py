"""Rules for InstanceTypes: new ones are offered, and one that goes names what to use instead.

How long a type stays deprecated is the business of ``grace.py``; whether the replacement exists and
is offered itself is said by a controller, as a condition.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.lifecycles import one_step_forward
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

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
