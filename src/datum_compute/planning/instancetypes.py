"""What is to be said about an InstanceType: since when it is deprecated, and whether what should be
used instead is there and offered."""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.api.conditions import FALSE, TRUE, Verdict
from datum_compute.api.instancetype import InstanceType, InstanceTypeStatus
from datum_compute.planning.verdicts import with_verdicts

READY = "Ready"
_VALID = Verdict(TRUE, "Valid", "The instance type can be used")


def type_status(
    instance_type: InstanceType, types: Mapping[str, InstanceType], now: str
) -> InstanceTypeStatus:
    """``types`` are all of the plane, by name."""
    generation = instance_type.metadata.generation
    told = with_verdicts(
        instance_type.status.conditions,
        {READY: _verdict(instance_type, types)},
        generation=generation,
        now=now,
    )
    return InstanceTypeStatus(
        conditions=told,
        deprecated_at=_deprecated_at(instance_type, now),
        observed_generation=generation,
    )


def _deprecated_at(instance_type: InstanceType, now: str) -> str | None:
    if instance_type.spec.lifecycle.phase == "Active":
        return None
    return instance_type.status.deprecated_at or now


def _verdict(instance_type: InstanceType, types: Mapping[str, InstanceType]) -> Verdict:
    lifecycle = instance_type.spec.lifecycle
    name = lifecycle.replacement_instance_type
    if lifecycle.phase == "Active" or not name:
        return _VALID
    replacement = types.get(name)
    if replacement is None or replacement.is_terminating:
        message = f"There is no instance type {name}, which should be used instead"
        return Verdict(FALSE, "ReplacementNotFound", message)
    if replacement.spec.lifecycle.phase == "Disabled":
        message = f"Instance type {name}, which should be used instead, is disabled itself"
        return Verdict(FALSE, "ReplacementDisabled", message)
    return _VALID
