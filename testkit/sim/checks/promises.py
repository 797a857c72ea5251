"""Checks at every commit of rollouts, deletions and namespaces.

``CHECKS`` in ``invariants.py`` lists them.
"""

from __future__ import annotations

import math

from datum_compute.api import labels
from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import BINDING, DEPLOYMENT, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB, PlaneName, cell_plane, member_name
from datum_compute.app.platform import EVERYTHING
from datum_compute.app.project_planes import AWAITED_KINDS
from datum_compute.client.watch import IDLE_TIMEOUT_S
from datum_compute.planes.lifecycle import finalized_kinds_on
from datum_compute.planning.reasons import TOO_LITTLE_QUOTA
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.state import (
    IN_FLIGHT_S,
    ClusterState,
    RowChange,
    condition,
    is_terminating,
    is_true,
)

# A machine takes longer than this to stop; a sound cell updates the status in less time.
STATUS_UPDATE_S = 0.05
# How long the hub may use the former city of a cell, until a half-open watch is replaced.
MOVE_OBSERVED_S = IDLE_TIMEOUT_S + 5.0


def i7_complete_rollouts_have_reached_cells(state: ClusterState, change: RowChange) -> str:
    """I7: a workload is reported as rolled out only when each of its cells has its newest spec."""
    row = change.after
    if row is None or is_terminating(row) or not _is_complete(row) or state.emptied_planes:
        return ""
    spec, uid = row.get("spec", {}), row["metadata"]["uid"]
    for placement in spec.get("placements", ()):
        if placement.get("fallbackCityCodes"):
            continue  # it may have been rolled out in another city
        replicas = placement.get("scaleSettings", {}).get("minReplicas", 1)
        for city in placement["cityCodes"]:
            cells = state.cells_of(city)
            if any(plane in cells for plane, _ in state.tampered):
                continue
            known = [_desired(d) for cell in cells for d in _deployments(state, cell, uid)]
            known += [_desired(d) for d in _deployments_before_move(state, city, uid)]
            if (_image(spec["template"]), replicas) not in known:
                where = f"{change.plane} {change.key.name}"
                return f"I7: {where} is reported as rolled out; {city} has {known}"
    return ""


def _is_complete(row: JsonObject) -> bool:
    status = row.get("status") or {}
    if status.get("observedGeneration") != row["metadata"]["generation"]:
        return False
    progress = condition(row, "Progressing")
    if progress is not None and progress["reason"] != Reason.ROLLOUT_COMPLETE:
        return False  # a surplus in one city may compensate for a deficit in another
    desired = status.get("desiredReplicas", 0)
    counts = (status.get(n, 0) for n in ("updatedReplicas", "readyReplicas", "replicas"))
    return desired > 0 and all(count == desired for count in counts)


def _deployments(state: ClusterState, cell: str, workload_uid: str) -> list[JsonObject]:
    return [
        row
        for _, row in state.rows_of(cell, DEPLOYMENT.resource)
        if row["metadata"].get("labels", {}).get(labels.WORKLOAD_UID) == workload_uid
    ]


def _deployments_before_move(state: ClusterState, city: str, workload_uid: str) -> list[JsonObject]:
    """Return the deployments of the workload on a cell that has just lost the city, while the hub
    still binds them to that cell. Once a binding has changed, only the new cell counts."""
    return [
        row
        for cell, (former, moved_s) in state.former_city.items()
        if former == city and state.now() - moved_s < MOVE_OBSERVED_S
        for row in _deployments(state, cell, workload_uid)
        if _is_bound(state, row, cell)
    ]


def _is_bound(state: ClusterState, deployment: JsonObject, cell: PlaneName) -> bool:
    metadata = deployment["metadata"]
    return any(
        target["name"] == member_name(cell)
        for key, binding in state.rows_of(HUB, BINDING.resource)
        if key.namespace == metadata["namespace"]
        and binding["spec"]["resource"]["name"] == metadata["name"]
        for target in binding["spec"].get("clusters", ())
    )


def _desired(deployment: JsonObject) -> tuple[str, int]:
    spec = deployment.get("spec", {})
    return _image(spec.get("template", {})), spec.get("scaleSettings", {}).get("minReplicas", 1)


def _image(template: JsonObject) -> str:
    """Return the image of the first container; an invalid object of an operator may have none."""
    sandbox = template.get("spec", {}).get("runtime", {}).get("sandbox", {})
    return str(next((c.get("image") for c in sandbox.get("containers", ())), ""))


def i1_one_instance_for_each_slot(state: ClusterState, change: RowChange) -> str:
    """I1: at most one Instance for each deployment and ordinal, whatever its name."""
    if change.before is not None or change.after is None or not change.plane.startswith("cell/"):
        return ""
    slot = _slot(change.after)
    if not all(slot) or any(plane == change.plane for plane, _ in state.tampered):
        return ""
    for key, row in state.rows_of(change.plane, INSTANCE.resource):
        if key != change.key and _slot(row) == slot:
            return f"I1: {change.plane} {change.key.name} has the slot of {key.name}"
    return ""


def _slot(row: JsonObject) -> tuple[str, str]:
    own = row["metadata"].get("labels", {})
    return own.get(labels.DEPLOYMENT_UID, ""), own.get(labels.INSTANCE_INDEX, "")


def i12_within_max_unavailable(state: ClusterState, change: RowChange) -> str:
    """I12: a ready instance is deleted only while fewer than ``maxUnavailable`` and ``maxSurge``
    others are terminating. An instance without quota does not count. A delete that was planned
    before a change of the spec may be committed just after it."""
    before, after = change.before, change.after
    if not change.plane.startswith("cell/") or before is None or is_terminating(before):
        return ""
    if after is not None and not is_terminating(after):
        return ""
    own = before["metadata"].get("labels", {})
    owner = own.get(labels.DEPLOYMENT_NAME, "")
    key = ObjectKey(DEPLOYMENT.resource, change.key.namespace, owner)
    deployment = state.rows[change.plane].get(key)
    if deployment is None or is_terminating(deployment) or not is_true(before, "Ready"):
        return ""
    prefixes = (change.key.namespace, owner)
    if any(plane == change.plane or name.startswith(prefixes) for plane, name in state.tampered):
        return ""  # an operator deleted it, here or on another plane
    if state.is_namespace_terminating(change.plane, change.key.namespace):
        return ""
    specs = [deployment.get("spec", {})]
    changed_s, former = state.former_spec.get((change.plane, key), (0.0, {}))
    if former and state.now() - changed_s < IN_FLIGHT_S:
        specs.append(former)
    found = [_exceeds_max_unavailable(state, change, key, spec) for spec in specs]
    return "" if "" in found else found[0]


def _exceeds_max_unavailable(
    state: ClusterState, change: RowChange, deployment: ObjectKey, spec: JsonObject
) -> str:
    wanted = spec.get("scaleSettings", {}).get("minReplicas", 1)
    if change.before is None or _ordinal(change.before) >= wanted:
        return ""
    terminating = []
    for sibling, row in state.rows_of(change.plane, INSTANCE.resource):
        same = row["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME) == deployment.name
        if not same or sibling.namespace != deployment.namespace or sibling == change.key:
            continue
        if is_terminating(row) and _ordinal(row) < wanted and not _waits_for_quota(row):
            terminating.append(sibling.name)
    surge = max_surge(spec)
    if len(terminating) < max(1, max_unavailable(spec, wanted) + surge):
        return ""
    others = ", ".join(terminating)
    return f"I12: {change.plane} {change.key.name} is deleted while {others} is terminating"


def max_surge(spec: JsonObject) -> int:
    """Return how many surge instances a rollout of the deployment may create."""
    settings = spec.get("scaleSettings", {})
    replicas, limit = int(settings.get("minReplicas", 1)), settings.get("maxSurge")
    if spec.get("template", {}).get("spec", {}).get("scaleToZero") is not None:
        return 0
    if limit is None:
        return int(replicas == 1)
    if isinstance(limit, str):
        return math.ceil(replicas * int(limit.removesuffix("%")) / 100)
    return int(limit)


def has_template_of(deployment: JsonObject, instance: JsonObject) -> bool:
    """Return True if the instance has the template that the cell's deployment has now."""
    template = deployment["spec"]["template"]
    return _has_template(instance, template, _city_restart(template.get("metadata", {})))


def has_template_of_city(state: ClusterState, deployment: JsonObject, instance: JsonObject) -> bool:
    """Return True if the instance has the template that is in effect in its city.

    That is the template of the cell's deployment, because cities may be updated one after the
    other, with the last restart that the workload records for the city. A deployment that lost the
    restart would make every current instance of the city look outdated.
    """
    template = deployment["spec"]["template"]
    return _has_template(instance, template, _recorded_restart(state, deployment))


def _has_template(instance: JsonObject, template: JsonObject, city_restarted_at: str) -> bool:
    found, metadata = instance["metadata"], template.get("metadata", {})
    return (
        all(instance["spec"].get(name) == value for name, value in template["spec"].items())
        and _workload_restart(found) == _workload_restart(metadata)
        and _city_restart(found) == city_restarted_at
    )


def _recorded_restart(state: ClusterState, deployment: JsonObject) -> str:
    """Return the last restart of the deployment's city; empty if there was none."""
    spec = deployment["spec"]
    uid = spec.get("workloadRef", {}).get("uid", "")
    for plane in state.rows if uid else ():
        for _, row in state.rows_of(plane, WORKLOAD.resource):
            if row["metadata"]["uid"] == uid:
                restarts = row["spec"].get("restarts", ())
                found = [r["at"] for r in restarts if r["cityCode"] == spec["cityCode"]]
                return str(found[-1]) if found else ""
    return _city_restart(spec["template"].get("metadata", {}))  # the workload is gone


def _workload_restart(metadata: JsonObject) -> str:
    found: str = metadata.get("annotations", {}).get(labels.RESTARTED_AT, "")
    return found


def _city_restart(metadata: JsonObject) -> str:
    found: str = metadata.get("annotations", {}).get(labels.CITY_RESTARTED_AT, "")
    return found


def is_surge_slot(deployment: JsonObject, number: int) -> bool:
    """Return True if the slot can have a surge instance now. After a scale-down the deployment may
    use an instance as one before its status lists it."""
    if not (deployment.get("status") or {}).get("surge"):
        return False
    return number in surge_ordinals(deployment)


def surge_ordinals(deployment: JsonObject) -> range:
    spec = deployment.get("spec", {})
    wanted = int(spec.get("scaleSettings", {}).get("minReplicas", 1))
    return range(wanted, wanted + max_surge(spec))


def max_unavailable(spec: JsonObject, wanted: int, *, without_surge: bool = False) -> int:
    """Return how many of the desired instances a rollout may have out of service.

    ``without_surge``: no surge instance can run.
    """
    has_surge = max_surge(spec) > 0
    limit = spec.get("scaleSettings", {}).get("maxUnavailable")
    if limit is None:
        limit = int(not has_surge)
    if isinstance(limit, str):
        limit = wanted * int(limit.removesuffix("%")) // 100
    return int(limit) if has_surge and not without_surge else max(1, int(limit))


def _waits_for_quota(row: JsonObject) -> bool:
    quota_granted = condition(row, "QuotaGranted")
    return quota_granted is not None and quota_granted["reason"] in TOO_LITTLE_QUOTA


def _ordinal(row: JsonObject) -> int:
    text = row["metadata"].get("labels", {}).get(labels.INSTANCE_INDEX, "")
    return int(text) if text.isdecimal() else -1


def i15_instance_leaves_after_its_machine(state: ClusterState, change: RowChange) -> str:
    """I15: an Instance is deleted on its cell only after its machines."""
    if change.after is not None or change.before is None or not change.plane.startswith("cell/"):
        return ""
    metadata = change.before["metadata"]
    if not metadata.get("ownerReferences") and not metadata.get("finalizers"):
        return ""  # created by an operator: instances of controllers have a finalizer and an owner
    if change.plane in state.restored:
        return ""  # the cell has no record of the machines, and removes them as orphans
    slot = f"{change.key.namespace}/{change.key.name}"
    for cell, machine_id in state.machines():
        own = cell == change.plane and machine_id.rpartition("/")[0] == slot
        if own and machine_id not in state.providers[cell].lied_about:
            return (
                f"I15: {change.plane} {change.key.name} is deleted, its machine {machine_id} runs"
            )
    return ""


class TerminatingInstances:
    """I7: a terminating Instance does not stay Ready until it is deleted.

    Checked only in worlds where nothing but machines fails: a cell that was stopped or cut off
    cannot update the status.
    """

    def __init__(self) -> None:
        self._since_s: dict[tuple[str, ObjectKey], float] = {}

    def violation(self, state: ClusterState, change: RowChange) -> str:
        if change.key.resource != INSTANCE.resource or not change.plane.startswith("cell/"):
            return ""
        place = (change.plane, change.key)
        if change.after is not None:
            if is_terminating(change.after):
                self._since_s.setdefault(place, change.at_s)
            return ""
        since_s = self._since_s.pop(place, change.at_s)
        was_updated = change.before is None or not is_true(change.before, "Ready")
        if was_updated or not state.only_machines_fail or state.tampered:
            return ""
        if change.at_s - since_s < STATUS_UPDATE_S:
            return ""
        return f"I7: {change.plane} {change.key.name} was Ready until it was deleted"


def i15_copy_stays_with_its_instance(state: ClusterState, change: RowChange) -> str:
    """I15: a copy is deleted on the hub only with its deployment, or when its cell no longer has
    that instance; never because the cell could not be read."""
    if change.after is not None or change.before is None or change.plane != HUB:
        return ""
    if change.key.resource != INSTANCE.resource or state.tampered or state.restored:
        return ""
    metadata = change.before["metadata"]
    cell, _, uid = metadata.get("annotations", {}).get(labels.COPY_OF, "").rpartition("/")
    if not cell or cell_plane(cell) in state.abandoned_cells:
        return ""
    source = state.rows.get(cell_plane(cell), {}).get(change.key)
    name = metadata.get("labels", {}).get(labels.DEPLOYMENT_NAME, "")
    owner = state.rows[HUB].get(ObjectKey(DEPLOYMENT.resource, change.key.namespace, name))
    if source is None or source["metadata"]["uid"] != uid or is_terminating(source):
        return ""
    if owner is None or is_terminating(owner) or not _owns(owner, change.before):
        return ""
    return f"I15: the hub's copy of {change.key.name} is deleted, and {cell} has the instance"


def _owns(owner: JsonObject, obj: JsonObject) -> bool:
    references = obj["metadata"].get("ownerReferences", ())
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def i14_desired_deployments_stay(state: ClusterState, change: RowChange) -> str:
    """I14: a project's deployment is not deleted while its workload lists its city. Only workloads
    that were never changed are checked, because a deletion may be late."""
    before, after = change.before, change.after
    if not change.plane.startswith("project/") or before is None or is_terminating(before):
        return ""
    if (after is not None and not is_terminating(after)) or state.tampered:
        return ""
    if state.is_namespace_terminating(change.plane, change.key.namespace):
        return ""
    own = before["metadata"].get("labels", {})
    key = ObjectKey(WORKLOAD.resource, change.key.namespace, own.get(labels.WORKLOAD_NAME, ""))
    workload = state.rows[change.plane].get(key)
    if workload is None or is_terminating(workload) or workload["metadata"]["generation"] > 1:
        return ""
    cities = [city for p in workload["spec"]["placements"] for city in p["cityCodes"]]
    if workload["metadata"]["uid"] != own.get(labels.WORKLOAD_UID):
        return ""
    wanted = before["spec"].get("cityCode") in cities
    return (
        f"I14: {change.plane} {change.key.name} is deleted, {key.name} lists its city"
        if wanted
        else ""
    )


def i15_plane_goes_drained(state: ClusterState, plane: str) -> str:
    """I15: the plane of a project is removed only after its workloads and its access. Other objects
    with finalizers may wait for an unreachable cell."""
    blocking_kinds = {kind.resource for kind in AWAITED_KINDS}
    finalized = finalized_kinds_on(plane.partition("/")[0], EVERYTHING)
    for key, row in state.rows.get(plane, {}).items():
        held = not finalized.finalizers.isdisjoint(row["metadata"].get("finalizers", ()))
        if held and key.resource in blocking_kinds:
            return f"I15: {plane} is removed, {key.resource} {key.name} has a finalizer in it"
    return ""


class RemovedNamespaces:
    """I3: a namespace is empty when it is deleted, and nothing is created in a deleted
    namespace."""

    def __init__(self) -> None:
        self._removed: dict[tuple[str, str], None] = {}

    def violation(self, state: ClusterState, change: RowChange) -> str:
        if change.key.resource == NAMESPACE.resource:
            return self._check_removal(state, change)
        is_created = change.before is None and change.after is not None
        namespace_key = ObjectKey(NAMESPACE.resource, "", change.key.namespace)
        if (
            is_created
            and (change.plane, namespace_key.name) in self._removed
            and namespace_key not in state.rows[change.plane]
        ):
            return f"I3: {change.plane} {change.key} was created in a deleted namespace"
        return ""

    def _check_removal(self, state: ClusterState, change: RowChange) -> str:
        place = (change.plane, change.key.name)
        if change.after is not None:
            self._removed.pop(place, None)
            return ""
        self._removed[place] = None
        left = [key for key in state.rows[change.plane] if key.namespace == change.key.name]
        return (
            f"I3: namespace {change.key.name} of {change.plane} was deleted with {left}"
            if left
            else ""
        )
