"""A Location is Ready while a cell of its city answers and takes new work; else it says which is
drained, or does not answer and since when.

Whether a project can use a location, where no entitlement keeps its LocationBindings.

What an entitlement has made is told of by that one (``provisions.py``); this is for bindings that
somebody has written by hand.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.cluster import Cluster
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    find_condition,
    is_true,
    with_verdicts,
)
from datum_compute.api.fields import CITY_CODE_KEY
from datum_compute.api.identity import normalized_city
from datum_compute.api.kinds import LOCATION, LOCATION_BINDING
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.location import Location, LocationStatus
from datum_compute.api.locationbinding import LocationBinding, LocationBindingStatus
from datum_compute.api.meta import controller_uid
from datum_compute.api.plane import PLATFORM, PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation.cells import drained_condition, is_drained
from datum_compute.planning.federation.unreachable import find_unreachable, same_reachability
from datum_compute.planning.plan import Action, Plan

READY = "Ready"
# Cells wake the location that is named for their city; others look by themselves.
RECHECK_S = 60.0


def plan_location(location: Location, clusters: Iterable[Cluster], now: str) -> Plan:
    """``clusters`` are all of the hub. Of a cell that nobody has asked yet nothing is said."""
    city = normalized_city(location.spec.topology.get(CITY_CODE_KEY, ""))
    cells = [c for c in clusters if city_of_cell(c) == city]
    verdict = _verdict(city, sorted(cells, key=lambda c: c.metadata.name))
    recheck_s = None if location.metadata.name == location_of(city) else RECHECK_S
    if verdict is None:
        return Plan(requeue_after_s=RECHECK_S)
    generation = location.metadata.generation
    told = with_verdicts(
        location.status.conditions, {READY: verdict}, generation=generation, now=now
    )
    status = LocationStatus(conditions=told, observed_generation=generation)
    actions = plan_status(PLATFORM, LOCATION, location, status)
    return Plan(tuple(actions), requeue_after_s=recheck_s)


def city_of_cell(cluster: Cluster) -> str:
    return normalized_city(cluster.metadata.labels.get(TOPOLOGY_CITY, ""))


def are_equally_open(old: Cluster | None, new: Cluster | None) -> bool:
    """Whether a change of a Cluster says nothing new of the location of its city."""
    if not same_reachability(old, new) or old is None or new is None:
        return False
    return is_drained(old) == is_drained(new)


def not_ready(said: Condition | None) -> Verdict:
    """What a project is told of a location that is not Ready, by what that says."""
    if said is not None and said.reason == Reason.CELL_DRAINED:
        return Verdict(FALSE, said.reason, said.message)
    told = f": {said.message}" if said is not None and said.message else ""
    return Verdict(FALSE, "LocationNotReady", f"The location is not ready{told}")


def location_of(city: str) -> str:
    """As the platform itself names the location of a city."""
    return city.lower()


def _verdict(city: str, cells: list[Cluster]) -> Verdict | None:
    heard = [cell for cell in cells if is_true(cell.status.conditions, "Ready")]
    if any(not is_drained(cell) for cell in heard):
        return Verdict(TRUE, "ServedByCell", "A cell of this platform serves the city")
    if heard:
        return drained_condition(heard[0].metadata.name)
    unreachable_cells = [
        unreachable for cell in cells if (unreachable := find_unreachable(cell)) is not None
    ]
    if unreachable_cells:
        return Verdict(FALSE, Reason.CELL_UNREACHABLE, unreachable_cells[0].verdict.message)
    return None if cells else Verdict(FALSE, "NoCell", f"No cell serves {city}")


AVAILABLE = "Available"


def plan_availability(
    plane: PlaneName, binding: LocationBinding, location: Location | None, now: str, *, alone: bool
) -> list[Action]:
    """``alone``: one cluster serves every city, and says nothing of locations."""
    if controller_uid(binding) or binding.is_terminating:
        return []
    verdict = _verdict_locationbindings(binding, location, alone=alone)
    if verdict is None:
        return []
    generation = binding.metadata.generation
    told = with_verdicts(
        binding.status.conditions, {AVAILABLE: verdict}, generation=generation, now=now
    )
    status = LocationBindingStatus(conditions=told, observed_generation=generation)
    return plan_status(plane, LOCATION_BINDING, binding, status)


def _verdict_locationbindings(
    binding: LocationBinding, location: Location | None, *, alone: bool
) -> Verdict | None:
    """None while nobody has said anything of the location yet."""
    if location is None:
        name = binding.spec.location_ref.name
        return Verdict(FALSE, "LocationNotFound", f"The platform has no location {name}")
    if alone:
        return Verdict(TRUE, "AllGatesOpen", "This cluster serves every city")
    ready = find_condition(location.status.conditions, "Ready")
    if ready is None:
        return None
    if ready.status == TRUE:
        return Verdict(TRUE, "AllGatesOpen", "The location is ready")
    return not_ready(ready)
