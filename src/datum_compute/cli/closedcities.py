"""Cities that a change would go to and that do not take it now: drained, or not answering."""

from __future__ import annotations

from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import FALSE, Condition, Reason, find_condition
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.api.planes import normalized_city
from datum_compute.cli.cities import city_of
from datum_compute.cli.observe import Observed
from datum_compute.cli.output import one_line
from datum_compute.cli.session import Session


async def city_warnings(session: Session, after: Workload, observed: Observed) -> list[str]:
    """One for each city of the workload that is closed to it. What runs in a drained city stays and
    is changed there, so only what would be new is warned of."""
    closed = await _closed(session)
    present = {normalized_city(d.spec.city_code) for d in observed.deployments.items}
    named = [normalized_city(city) for p in after.spec.placements for city in p.city_codes]
    warnings = []
    for city in dict.fromkeys(named):
        said = closed.get(city)
        if said is None or (said.reason == Reason.CELL_DRAINED and city in present):
            continue
        why = one_line(said.message).rstrip(".")
        warnings.append(f"Warning: {city} cannot be used now, and is waited for: {why}")
    return warnings


async def _closed(session: Session) -> dict[str, Condition]:
    """What those say that cannot be used; a city with one that can is open."""
    try:
        bindings = (await session.client.list(LOCATION_BINDING)).items
    except (Forbidden, NotFound):
        return {}
    closed: dict[str, Condition] = {}
    opened: set[str] = set()
    for binding in bindings:
        city = normalized_city(city_of(binding))
        said = find_condition(binding.status.conditions, "Available")
        if said is not None and said.status == FALSE:
            closed.setdefault(city, said)
        else:
            opened.add(city)
    return {city: said for city, said in closed.items() if city not in opened}
