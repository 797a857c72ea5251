"""An instance type goes when it is no longer offered: after Deprecated and Disabled.

What the catalogue offers decides, so the rule holds for the original and for its copies, and those
who keep the copies need no right of their own: a copy whose original is gone, or that has amounts
which the original has not, is nobody's offer.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.questions import Answers, Question, Removal
from datum_compute.admission.sizes import TYPES
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

_FIELD = "spec.lifecycle.phase"
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
        phase = _phase(offered)
        if phase in _NEXT:
            why = (
                f'"{phase}": workloads may still ask for this instance type; {_NEXT[phase]}, and '
                "delete it once it is Disabled"
            )
            yield Cause(_FIELD, "FieldValueForbidden", f"Forbidden: {why}")


def _phase(instance_type: JsonObject) -> str:
    return str(instance_type["spec"].get("lifecycle", {}).get("phase", "Active"))
