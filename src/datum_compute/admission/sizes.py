"""The size that a Workload asks for must be one that is offered.

Active types are offered; a Deprecated one warns and names its replacement; a Disabled or unknown
one is refused. A workload that keeps the type it has is only warned, so that it can be scaled and
repaired whatever becomes of its type. Where there is no catalogue the built-in sizes count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from datum_compute.admission.findings import Finding, Warned
from datum_compute.admission.nearest import hint
from datum_compute.admission.questions import Answers, Listing, Write
from datum_compute.api.compute.instance_type import BUILT_IN_SIZES, size_name
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta.codec import JsonObject

TYPES = Listing(INSTANCE_TYPE, catalogue=True)
_FIELD = "spec.template.spec.runtime.resources.instanceType"


def asks_for_types(write: Write) -> Iterable[Listing]:
    if write.changes_spec:
        yield TYPES


def size_is_offered(write: Write, answers: Answers) -> Iterable[Finding]:
    if not write.changes_spec:
        return
    asked = _asked(write.new)
    name = size_name(asked)
    types = _lifecycles(answers)
    kept = write.old is not None and size_name(_asked(write.old)) == name
    if name not in types:
        if not kept:
            yield Cause(_FIELD, "FieldValueNotSupported", _unknown(asked, types))
        return
    phase = types[name].get("phase", "Active")
    instead = types[name].get("replacementInstanceType", "")
    if phase == "Active":
        return
    advice = f"; use {instead} instead" if instead else ""
    text = f"instance type {name} is {phase.lower()}{advice}"
    if phase == "Disabled" and not kept:
        yield Cause(_FIELD, "FieldValueForbidden", f'Forbidden: "{asked}": {text}')
    else:
        yield Warned(f"{_FIELD}: {text}")


def _asked(workload: JsonObject) -> str:
    runtime = workload["spec"]["template"]["spec"]["runtime"]
    return str(runtime.get("resources", {}).get("instanceType", ""))


def _lifecycles(answers: Answers) -> Mapping[str, JsonObject]:
    found = {t["metadata"]["name"]: t["spec"].get("lifecycle", {}) for t in answers.listed[TYPES]}
    return found or {name: {} for name in BUILT_IN_SIZES}


def _unknown(asked: str, types: Mapping[str, JsonObject]) -> str:
    offered = [name for name, lifecycle in types.items() if lifecycle.get("phase") != "Disabled"]
    advice = hint(size_name(asked), offered)
    return f'Unsupported value: "{asked}": there is no such instance type; {advice}'.rstrip("; ")
