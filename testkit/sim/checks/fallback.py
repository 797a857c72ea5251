"""Checks of replicas that move to fallback cities.

- I16, at every commit: a deployment that serves a city is deleted only when another one serves it.
- I16, settled: no move is in progress, and every lost city with a usable fallback city has moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import project_plane
from datum_compute.store.journal import ObjectKey
from testkit.sim.actors.users import NAMESPACE_NAME
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.state import ClusterState, RowChange, condition, is_terminating, is_true
from testkit.sim.checks.suspension import halted_workloads
from testkit.sim.host import EPOCH_S

# The controller may act on an observation of the other deployment that is this old.
SEEN_S = 30.0


def cities_in_use(
    state: ClusterState, expected: ExpectedState, project: str, name: str
) -> tuple[str, ...] | str:
    """Return the cities that the workload runs in, or the move that is in progress."""
    desired = expected.desired[(project, name)]
    if not desired.fallback:
        return desired.cities
    rows = list(_deployments(state, project_plane(project), name))
    live = [row for row in rows if not is_terminating(row)]
    found: list[str] = []
    for city in desired.cities:
        moved = _moved_to(live, city)
        own = any(_city(row) == city for row in rows)
        own = own and city.lower() not in expected.lost  # the return to a lost city never completes
        if len(moved) > 1 or (moved and own):
            return f"{project} {name}: the replicas of {city} are moving to {moved}"
        found += moved or [city]
    return tuple(found)


def i16_shares_of_lost_cities_have_moved(state: ClusterState, expected: ExpectedState) -> str:
    """I16: every lost city with a usable fallback city has moved there, even if quota is scarce.

    A workload that is stopped or suspended does not move.
    """
    halted = halted_workloads(state, expected)
    for (project, name), desired in expected.desired.items() if expected.lost else ():
        if (project, name) in halted:
            continue
        rows = _deployments(state, project_plane(project), name)
        live = [row for row in rows if not is_terminating(row)]
        found: list[str] = []
        for city in desired.cities:
            moved = _moved_to(live, city)
            is_lost = city.lower() in expected.lost and not moved
            if is_lost and _could_move(expected, desired.fallback, found):
                return f"{project} {name}: {city} is lost, and no fallback city serves it"
            found += moved or [city]
    return ""


def _moved_to(live: Iterable[JsonObject], city: str) -> list[str]:
    return [_city(row) for row in live if _fallback_for(row) == city]


def _could_move(expected: ExpectedState, fallback: tuple[str, ...], in_use: list[str]) -> bool:
    return any(c.lower() not in expected.lost and c not in in_use for c in fallback)


def i16_served_until_replaced(state: ClusterState, change: RowChange) -> str:
    """I16: a project's deployment is deleted only when another serves its city."""
    before, after = change.before, change.after
    if change.key.resource != DEPLOYMENT.resource or not change.plane.startswith("project/"):
        return ""
    if before is None or is_terminating(before) or state.tampered or state.writes_come_late:
        return ""
    if (after is not None and not is_terminating(after)) or state.is_namespace_terminating(
        change.plane, change.key.namespace
    ):
        return ""
    replaced_city = _fallback_for(before) or _city(before)
    name = before["metadata"].get("labels", {}).get(labels.WORKLOAD_NAME, "")
    if replaced_city not in _cities_with_fallback(state, change, name, before):
        return ""
    others = [
        row
        for row in _deployments(state, change.plane, name)
        if row["metadata"]["uid"] != before["metadata"]["uid"]
        and (_fallback_for(row) or _city(row)) == replaced_city
    ]
    if any(_served_recently(row, state.now()) for row in others):
        return ""
    where = f"{change.plane} {change.key.name}"
    return f"I16: {where} is deleted, and no other deployment serves {replaced_city}"


def _cities_with_fallback(
    state: ClusterState, change: RowChange, name: str, row: JsonObject
) -> list[str]:
    key = ObjectKey(WORKLOAD.resource, change.key.namespace, name)
    workload = state.rows[change.plane].get(key)
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


def _served_recently(row: JsonObject, now_s: float) -> bool:
    found = condition(row, "Available")
    if is_true(row, "Available") or found is None:
        return found is not None
    changed_s = parse_timestamp(found["lastTransitionTime"]) - EPOCH_S
    return abs(now_s - changed_s) < SEEN_S


def _deployments(state: ClusterState, plane: str, workload: str) -> Iterator[JsonObject]:
    for key, row in state.rows_of(plane, DEPLOYMENT.resource):
        workload_name = row["metadata"].get("labels", {}).get(labels.WORKLOAD_NAME)
        if key.namespace == NAMESPACE_NAME and workload_name == workload:
            yield row


def _fallback_for(row: JsonObject) -> str:
    found: str = row["metadata"].get("annotations", {}).get(labels.FALLBACK_FOR, "")
    return found


def _city(row: JsonObject) -> str:
    city: str = row.get("spec", {}).get("cityCode", "")
    return city
