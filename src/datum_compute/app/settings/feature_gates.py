"""Groups of controllers that can be switched off: ``--feature-gates Name=false``.

No other controller waits for the work of a group in ``GATES``, and none depends on it for cleanup.
To add a gate: a line in ``GATES``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.controllers.federation.instances import QUARANTINE_CONTROLLER
from datum_compute.controllers.network.networks import DEFAULT_NETWORK_CONTROLLER
from datum_compute.controllers.platform.instance_types import (
    COPY_CONTROLLER,
    INSTANCE_TYPE_CONTROLLER,
)
from datum_compute.controllers.workload.workload import REVISION_CONTROLLER
from datum_compute.runtime.controller import Controller

FeatureGates = Mapping[str, bool]

GATES: dict[str, tuple[Controller[Any], ...]] = {
    # Off: operators maintain the instance types of every plane.
    "InstanceTypes": (COPY_CONTROLLER, INSTANCE_TYPE_CONTROLLER),
    # Off: a namespace has only the networks that its users create.
    "DefaultNetworks": (DEFAULT_NETWORK_CONTROLLER,),
    # Off: hub copies without a valid target are retried and never quarantined.
    "Quarantine": (QUARANTINE_CONTROLLER,),
    # Off: workloads have no revision history.
    "WorkloadRevisions": (REVISION_CONTROLLER,),
}


def parse_gates(text: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in GATES:
            raise ValueError(f"{name!r} is not a feature; features are {', '.join(GATES)}")
        if value.lower() not in ("true", "false"):
            raise ValueError(f"{part!r} is neither {name}=true nor {name}=false")
        found[name] = value.lower() == "true"
    return found


def enabled_controllers(
    controllers: tuple[Controller[Any], ...], gates: FeatureGates
) -> tuple[Controller[Any], ...]:
    """Return the controllers that no gate switches off."""
    off = [c for name, group in GATES.items() if not gates.get(name, True) for c in group]
    return tuple(c for c in controllers if c not in off)
