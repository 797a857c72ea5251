"""Plan the Ready condition of Locations and the Available condition of LocationBindings.

A Location is Ready while a reachable cell of its city accepts new instances. Otherwise the
condition names a drained cell, or an unreachable cell and the time since which it is unreachable.

Available is planned here for the LocationBindings that users create. The bindings of an entitlement
are planned with it (``provisioned_objects.py``).
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    set_conditions,
)
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import LOCATION, LOCATION_BINDING
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.meta.fields import CITY_CODE_KEY
from datum_compute.api.meta.objects import controller_uid
from datum_compute.api.networking.location import (
    Location,
    LocationBinding,
    LocationBindingStatus,
    LocationStatus,
)
from datum_compute.api.planes import PLATFORM, PlaneName, normalize_city
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation.cells import drained_condition, is_drained
from datum_compute.planning.federation.unreachable import find_unreachable, same_reachability
from datum_compute.planning.plan import Action, Plan

READY, AVAILABLE = "Ready", "Available"
# A change of a cell reconciles the location named after its city. Others are checked periodically.
RECHECK_S = 60.0


def plan_location(location: Location, clusters: Iterable[Cluster], now: str) -> Plan:
    """Plan the status of a Location; ``clusters`` are all Clusters of the hub.

    Nothing is reported before the first probe of a cell of the city.
    """
    city = normalize_city(location.spec.topology.get(CITY_CODE_KEY, ""))
    cells = [c for c in clusters if city_of_cell(c) == city]
    verdict = _ready_verdict(city, sorted(cells, key=lambda cell: cell.metadata.name))
    recheck_s = None if location.metadata.name == location_of(city) else RECHECK_S
    if verdict is None:
        return Plan(requeue_after_s=RECHECK_S)
    generation = location.metadata.generation
    conditions = set_conditions(
        location.status.conditions, {READY: verdict}, generation=generation, now=now
    )
    status = LocationStatus(conditions=conditions, observed_generation=generation)
    actions = plan_status(PLATFORM, LOCATION, location, status)
    return Plan(tuple(actions), requeue_after_s=recheck_s)


def city_of_cell(cluster: Cluster) -> str:
    return normalize_city(cluster.metadata.labels.get(TOPOLOGY_CITY, ""))


def same_availability(old: Cluster | None, new: Cluster | None) -> bool:
    """Return True if an update of a Cluster does not change the Location of its city."""
    if not same_reachability(old, new) or old is None or new is None:
        return False
    return is_drained(old) == is_drained(new)


def location_not_ready(ready: Condition | None) -> ConditionValue:
    """Return Available of a binding, from the Ready condition of its location that is not ready."""
    if ready is not None and ready.reason == Reason.CELL_DRAINED:
        return ConditionValue(FALSE, ready.reason, ready.message)
    cause = f": {ready.message}" if ready is not None and ready.message else ""
    return ConditionValue(FALSE, "LocationNotReady", f"The location is not ready{cause}")


def location_of(city: str) -> str:
    """Return the name of the Location that the platform creates for a city."""
    return city.lower()


def _ready_verdict(city: str, cells: list[Cluster]) -> ConditionValue | None:
    reachable = [cell for cell in cells if is_true(cell.status.conditions, "Ready")]
    if any(not is_drained(cell) for cell in reachable):
        return ConditionValue(TRUE, "ServedByCell", "A cell of this platform serves the city")
    if reachable:
        return drained_condition(reachable[0].metadata.name)
    unreachable = next(filter(None, map(find_unreachable, cells)), None)
    if unreachable is not None:
        return ConditionValue(FALSE, Reason.CELL_UNREACHABLE, unreachable.verdict.message)
    return None if cells else ConditionValue(FALSE, "NoCell", f"No cell serves {city}")


# --- bindings


def plan_availability(
    plane: PlaneName,
    binding: LocationBinding,
    location: Location | None,
    now: str,
    *,
    single_cluster: bool,
) -> list[Action]:
    """Plan the Available condition of a binding that a user created.

    Such a binding has no controller owner. A single cluster serves every city.
    """
    if controller_uid(binding) or binding.is_terminating:
        return []
    verdict = _available_verdict(binding, location, single_cluster=single_cluster)
    if verdict is None:
        return []
    generation = binding.metadata.generation
    conditions = set_conditions(
        binding.status.conditions, {AVAILABLE: verdict}, generation=generation, now=now
    )
    status = LocationBindingStatus(conditions=conditions, observed_generation=generation)
    return plan_status(plane, LOCATION_BINDING, binding, status)


def _available_verdict(
    binding: LocationBinding, location: Location | None, *, single_cluster: bool
) -> ConditionValue | None:
    """Return the value of Available; None while the Location has no Ready condition."""
    if location is None:
        name = binding.spec.location_ref.name
        return ConditionValue(FALSE, "LocationNotFound", f"The platform has no location {name}")
    if single_cluster:
        return ConditionValue(TRUE, "AllGatesOpen", "This cluster serves every city")
    ready = find_condition(location.status.conditions, "Ready")
    if ready is None:
        return None
    if ready.status == TRUE:
        return ConditionValue(TRUE, "AllGatesOpen", "The location is ready")
    return location_not_ready(ready)
