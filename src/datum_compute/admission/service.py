"""Rules for Services and their configurations: phases, and metrics that are declared before use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import get_args

from datum_compute.admission.lifecycles import one_step_forward
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import ServicePhase

phase_goes_forward = one_step_forward(
    "spec.phase", get_args(ServicePhase), lambda obj: str(obj["spec"]["phase"])
)


def metrics_are_declared(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """A limit or a cost of a metric that nobody declared would never count anything."""
    declared = [metric["name"] for metric in new["spec"].get("metrics", ())]
    listed = ", ".join(f'"{name}"' for name in declared) or "none"
    for path, name in _used_metrics(new["spec"].get("quota", {})):
        if name not in declared:
            why = f"is not declared in spec.metrics (declared: {listed})"
            yield Cause(path, "FieldValueInvalid", f'Invalid value: "{name}": {why}')


def limits_are_in_order(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for index, limit in enumerate(new["spec"].get("quota", {}).get("limits", ())):
        given, most = limit["defaultLimit"], limit.get("maxLimit")
        if most is not None and given > most:
            path = f"spec.quota.limits[{index}].defaultLimit"
            why = f"must be no more than maxLimit ({most})"
            yield Cause(path, "FieldValueInvalid", f"Invalid value: {given}: {why}")


def nothing_is_provisioned(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """What would be accepted and never made."""
    if new["spec"].get("provisioning", {}).get("resources"):
        why = "objects for entitled projects are not supported yet; leave it out"
        yield Cause("spec.provisioning.resources", "FieldValueForbidden", f"Forbidden: {why}")


def _used_metrics(quota: JsonObject) -> Iterator[tuple[str, str]]:
    for index, limit in enumerate(quota.get("limits", ())):
        yield f"spec.quota.limits[{index}].metric", limit["metric"]
    for index, rule in enumerate(quota.get("metricRules", ())):
        for name in rule["metricCosts"]:
            yield f"spec.quota.metricRules[{index}].metricCosts", name
