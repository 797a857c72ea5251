"""What must hold of shares that move to fallback cities.

C, I16: whatever serves a city that is asked for goes only when something else serves it. S, I16:
nothing is on the move any more, and a lost city with a fallback to go to has moved there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.plane import project_plane
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.store.journal import ObjectKey
from testkit.sim.actors.users import NAMESPACE_NAME
from testkit.sim.checks.expected_state import Core
from testkit.sim.checks.state import Step, Truth, condition, is_terminating, is_true
from testkit.sim.host import EPOCH_S

# Who removes something may have seen the other a moment ago, or be slow.
SEEN_S = 30.0


def cities_in_use(truth: Truth, core: Core, project: str, name: str) -> tuple[str, ...] | str:
    """Those that the workload runs in; or what is still on the move."""
    wanted = core.wanted[(project, name)]
    if not wanted.fallback:
        return wanted.cities
    rows = list(_deployments(truth, project_plane(project), name))
    live = [row for row in rows if not is_terminating(row)]
    found: list[str] = []
    for city in wanted.cities:
        moved = _moved_to(live, city)
        own = any(_city(row) == city for row in rows)
        own = own and city.lower() not in core.lost  # who is to go back to it waits for ever
        if len(moved) > 1 or (moved and own):
            return f"{project} {name}: the share of {city} is moving to {moved}"
        found += moved or [city]
    return tuple(found)


def i16_lost_shares_are_taken(truth: Truth, core: Core) -> str:
    """I16: a lost city with a fallback to go to has moved there, also where quota is short: what
    is due to move is not settled."""
    for (project, name), wanted in core.wanted.items() if core.lost else ():
        rows = _deployments(truth, project_plane(project), name)
        live = [row for row in rows if not is_terminating(row)]
        found: list[str] = []
        for city in wanted.cities:
            moved = _moved_to(live, city)
            is_lost = city.lower() in core.lost and not moved
            if is_lost and _could_move(core, wanted.fallback, found):
                return f"{project} {name}: {city} is lost, and nobody has taken its share"
            found += moved or [city]
    return ""


def _moved_to(live: Iterable[JsonObject], city: str) -> list[str]:
    return [_city(row) for row in live if _stands_for(row) == city]


def _could_move(core: Core, fallback: tuple[str, ...], taken: list[str]) -> bool:
    return any(c.lower() not in core.lost and c not in taken for c in fallback)


def i16_served_until_replaced(truth: Truth, step: Step) -> str:
    """I16, at the moment in which a deployment of a project begins to go."""
    before, after = step.before, step.after
    if step.key.resource != DEPLOYMENT.resource or not step.plane.startswith("project/"):
        return ""
    if before is None or is_terminating(before) or truth.tampered or truth.writes_come_late:
        return ""
    if (after is not None and not is_terminating(after)) or truth.is_leaving(
        step.plane, step.key.namespace
    ):
        return ""
    share = _stands_for(before) or _city(before)
    name = before["metadata"].get("labels", {}).get(labels.WORKLOAD_NAME, "")
    if share not in _cities_with_fallback(truth, step, name, before):
        return ""
    others = [
        row
        for row in _deployments(truth, step.plane, name)
        if row["metadata"]["uid"] != before["metadata"]["uid"]
        and (_stands_for(row) or _city(row)) == share
    ]
    if any(_served_lately(row, truth.now()) for row in others):
        return ""
    return f"I16: {step.plane} {step.key.name} goes, and nobody else serves {share}"


def _cities_with_fallback(truth: Truth, step: Step, name: str, row: JsonObject) -> list[str]:
    key = ObjectKey(WORKLOAD.resource, step.key.namespace, name)
    workload = truth.rows[step.plane].get(key)
    if workload is None or is_terminating(workload):
        return []
    if workload["metadata"]["uid"] != row["spec"].get("workloadRef", {}).get("uid"):
        return []
    return [
        city
        for placement in workload["spec"]["placements"]
        if placement.get("fallbackCityCodes")
        for city in placement["cityCodes"]
    ]


def _served_lately(row: JsonObject, now_s: float) -> bool:
    found = condition(row, "Available")
    if is_true(row, "Available") or found is None:
        return found is not None
    changed_s = parse_timestamp(found["lastTransitionTime"]) - EPOCH_S
    return abs(now_s - changed_s) < SEEN_S


def _deployments(truth: Truth, plane: str, workload: str) -> Iterator[JsonObject]:
    for key, row in truth.of_resource(plane, DEPLOYMENT.resource):
        told = row["metadata"].get("labels", {}).get(labels.WORKLOAD_NAME)
        if key.namespace == NAMESPACE_NAME and told == workload:
            yield row


def _stands_for(row: JsonObject) -> str:
    found: str = row["metadata"].get("annotations", {}).get(labels.FALLBACK_FOR, "")
    return found


def _city(row: JsonObject) -> str:
    city: str = row.get("spec", {}).get("cityCode", "")
    return city
