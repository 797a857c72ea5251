"""Whether a project can use a location, where no entitlement keeps its LocationBindings.

What an entitlement has made is told of by that one (``provisions.py``); this is for bindings that
somebody has written by hand.
"""

from __future__ import annotations

from datum_compute.api.conditions import FALSE, TRUE, Verdict, find_condition
from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.api.location import Location
from datum_compute.api.locationbinding import LocationBinding, LocationBindingStatus
from datum_compute.api.meta import controller_uid
from datum_compute.api.plane import PlaneName
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Action
from datum_compute.planning.platform.locations import not_ready
from datum_compute.planning.verdicts import with_verdicts

AVAILABLE = "Available"


def plan_availability(
    plane: PlaneName, binding: LocationBinding, location: Location | None, now: str, *, alone: bool
) -> list[Action]:
    """``alone``: one cluster serves every city, and says nothing of locations."""
    if controller_uid(binding) or binding.is_terminating:
        return []
    verdict = _verdict(binding, location, alone=alone)
    if verdict is None:
        return []
    generation = binding.metadata.generation
    told = with_verdicts(
        binding.status.conditions, {AVAILABLE: verdict}, generation=generation, now=now
    )
    status = LocationBindingStatus(conditions=told, observed_generation=generation)
    return plan_status(plane, LOCATION_BINDING, binding, status)


def _verdict(binding: LocationBinding, location: Location | None, *, alone: bool) -> Verdict | None:
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
