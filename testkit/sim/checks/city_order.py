"""Checks of the order in which cities get a new template: I30 and I31.

I30: with ``Sequential`` or ``CanaryCity`` a city gets another template only when the cities before
it have completed that template, or if a rule applies it at once: the earlier city is skipped, the
template is the one that another city never left, or a rollback restores it.

I31: a rollback restores exactly the template that its revision records, with the last restart of
the city.

The cells are the ground truth: a city has completed a template when its own cell has reported a
complete rollout of it. What an operator edited, and planes that were restored, are not checked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import DEPLOYMENT, REVISION, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.planning.rollout.suspension import NO_REACHABLE_CELL
from datum_compute.planning.workload.city_order import city_order_of, is_rolled_back
from datum_compute.planning.workload.templates import with_city_restart
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.state import ClusterState, RowChange, condition, is_terminating

# A controller may have decided with a state that is this old.
STATE_KNOWN_S = 30.0


@dataclass(slots=True)
class CityOrderWatch:
    """Records which cities completed which templates, and checks each change of a template."""

    # Workload uid, city and image of each rollout that a cell has reported as complete.
    _completed: dict[tuple[str, str, str], None] = field(default_factory=dict)
    # When a city of a project was last skipped, by plane and deployment.
    _skipped_s: dict[tuple[str, ObjectKey], float] = field(default_factory=dict)
    # Former specs of workloads, with the time until which they were current.
    _former: dict[tuple[str, ObjectKey], list[tuple[float, JsonObject]]] = field(
        default_factory=dict
    )

    def violation(self, state: ClusterState, change: RowChange) -> str:
        if change.key.resource == WORKLOAD.resource:
            self._record_former_spec(change)
        if change.key.resource != DEPLOYMENT.resource or change.after is None:
            return ""
        if change.plane.startswith("cell/"):
            self._record_completed(change.after)
        if not change.plane.startswith("project/"):
            return ""
        if any(map(_is_unreachable, filter(None, (change.before, change.after)))):
            self._skipped_s[change.plane, change.key] = change.at_s
        if change.before is None or image_of(change.before) == image_of(change.after):
            return ""
        return self._check_change(state, change, change.after)

    def _record_former_spec(self, change: RowChange) -> None:
        before, after = change.before, change.after
        if before is None or after is None or before.get("spec") == after.get("spec"):
            return
        known = self._former.setdefault((change.plane, change.key), [])
        known[:] = [entry for entry in known if entry[0] > change.at_s - STATE_KNOWN_S]
        known.append((change.at_s, before.get("spec", {})))

    def _record_completed(self, row: JsonObject) -> None:
        progressing = condition(row, "Progressing")
        if progressing is None or progressing["reason"] != Reason.ROLLOUT_COMPLETE:
            return
        if progressing.get("observedGeneration") == row["metadata"]["generation"]:
            spec = row["spec"]
            completed = spec["workloadRef"]["uid"], spec["cityCode"], image_of(row)
            self._completed[completed] = None

    def _check_change(self, state: ClusterState, change: RowChange, after: JsonObject) -> str:
        if is_terminating(after) or state.restored or state.tampered or state.emptied_planes:
            return ""
        reference = after["spec"]["workloadRef"]
        key = ObjectKey(WORKLOAD.resource, change.key.namespace, reference["name"])
        workload = state.rows[change.plane].get(key)
        if workload is None or workload["metadata"]["uid"] != reference["uid"]:
            return ""
        if is_rolled_back(from_json(workload, Workload)):
            return _find_undo_problem(state, change.plane, workload, after)
        former = self._former.get((change.plane, key), ())
        specs = [spec for until_s, spec in former if until_s > change.at_s - STATE_KNOWN_S]
        problems = [
            self._find_problem(state, change, after, {**workload, "spec": spec})
            for spec in (workload["spec"], *specs)
        ]
        return problems[0] if all(problems) else ""

    def _find_problem(
        self, state: ClusterState, change: RowChange, after: JsonObject, workload: JsonObject
    ) -> str:
        """Return a violation if no rule allows the change."""
        image, city, order = image_of(after), after["spec"]["cityCode"], _order_of(workload)
        cities = [c for p in workload["spec"]["placements"] for c in p["cityCodes"]]
        siblings = _siblings(state, change.plane, after)
        is_fallback = any(
            labels.FALLBACK_FOR in row["metadata"].get("annotations", {}) for row in siblings
        )
        if order == "Parallel" or city not in cities or is_fallback:
            return ""
        if _is_change_back(workload, siblings, after):
            return ""
        uid = after["spec"]["workloadRef"]["uid"]
        if order == "CanaryCity" and any((uid, c, image) in self._completed for c in cities):
            return ""
        for other in cities[: cities.index(city)]:
            if (uid, other, image) in self._completed:
                continue
            row = next((row for row in siblings if row["spec"]["cityCode"] == other), None)
            if row is not None and not self._was_skipped(change, row):
                return (
                    f"I30: {change.plane} {change.key.name} gets {image} in {city} before {other} "
                    f"has completed it ({order})"
                )
        return ""

    def _was_skipped(self, change: RowChange, row: JsonObject) -> bool:
        if _is_unreachable(row):
            return True
        metadata = row["metadata"]
        key = ObjectKey(DEPLOYMENT.resource, metadata.get("namespace", ""), metadata["name"])
        skipped_s = self._skipped_s.get((change.plane, key))
        return skipped_s is not None and change.at_s - skipped_s < STATE_KNOWN_S


def _is_unreachable(row: JsonObject) -> bool:
    available = condition(row, "Available")
    return available is not None and available["reason"] in NO_REACHABLE_CELL


def image_of(row: JsonObject) -> str:
    """Return the image of a deployment. Each template of a simulated user has another image."""
    image: str = row["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"]
    return image


def _order_of(workload: JsonObject) -> str:
    order: str = city_order_of(from_json(workload, Workload))
    return order


def _siblings(state: ClusterState, plane: str, row: JsonObject) -> list[JsonObject]:
    """Return the deployments of the same workload that are not being deleted."""
    uid = row["spec"]["workloadRef"]["uid"]
    return [
        found
        for _, found in state.rows_of(plane, DEPLOYMENT.resource)
        if found["spec"]["workloadRef"]["uid"] == uid and not is_terminating(found)
    ]


def _is_change_back(workload: JsonObject, siblings: list[JsonObject], after: JsonObject) -> bool:
    """Return True if another city, which waits for its turn, has this template."""
    cities = workload.get("status", {}).get("rollout", {}).get("cities", ())
    waiting = {city["city"] for city in cities if city["state"] == "Waiting"}
    others = (row for row in siblings if row["spec"]["cityCode"] != after["spec"]["cityCode"])
    return any(
        row["spec"]["cityCode"] in waiting and image_of(row) == image_of(after) for row in others
    )


def _find_undo_problem(
    state: ClusterState, plane: str, workload: JsonObject, after: JsonObject
) -> str:
    """I31: return a violation if the template differs from that of the restored revision."""
    number = workload["status"]["rollout"].get("runningRevision")
    uid, restored = workload["metadata"]["uid"], from_json(after, WorkloadDeployment)
    for _, row in state.rows_of(plane, REVISION.resource):
        if (row["spec"]["workloadRef"]["uid"], row["spec"]["revision"]) == (uid, number):
            recorded = from_json(row, WorkloadRevision).spec.template
            restarts = workload["spec"].get("restarts", ())
            own = [r["at"] for r in restarts if r["cityCode"] == restored.spec.city_code]
            # A restart of one city applies to whatever template the city has.
            if with_city_restart(recorded, own[-1] if own else "") == restored.spec.template:
                return ""
    return (
        f"I31: {plane} {after['metadata']['name']} differs from revision {number} after a rollback"
    )
