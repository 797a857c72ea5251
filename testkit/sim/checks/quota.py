"""Checks of quota: I2 and I4 at every commit, I2 and I22 in a settled world with scarce quota.

A lower grant does not revoke quota that was granted before. Usage may therefore exceed the limit
for a while, but no claim may be granted then.

The checks do not require which instances get quota, but how many: all that the grant allows, and no
more. An instance without quota must report it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from datum_compute.api import labels
from datum_compute.api.compute.instance import QUOTA_GRANTED
from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import (
    BUCKET,
    CLAIM,
    CLUSTER,
    GRANT,
    INSTANCE,
    NAMESPACE,
    SERVER,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB, cell_plane, project_plane
from datum_compute.api.quota import GRANTED
from datum_compute.planning.reasons import TOO_LITTLE_QUOTA
from datum_compute.planning.rollout.gates import QUOTA
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.state import (
    IN_FLIGHT_S,
    ClusterState,
    RowChange,
    condition,
    is_terminating,
    is_true,
)
from testkit.sim.checks.suspension import halted_workloads
from testkit.sim.scenario.scenario import PLENTY

# (project plane, consumer, resource type) -> (granted, limit), in base units.
Totals = dict[tuple[str, str, str], tuple[int, int]]


def quota_totals(rows: Iterable[tuple[str, JsonObject]]) -> Totals:
    """Sum up the claims and grants among the objects of all planes, given as (plane, body)."""
    totals: Totals = {}

    def add(plane: str, body: JsonObject, resource_type: str, granted: int, limit: int) -> None:
        consumer = body["spec"]["consumerRef"]
        key = (plane, f"{consumer['kind']}/{consumer['name']}", resource_type)
        before = totals.get(key, (0, 0))
        totals[key] = before[0] + granted, before[1] + limit

    for plane, body in rows:
        if body.get("kind") == CLAIM.kind and _is_true(body, "Granted"):
            for request in body["spec"]["requests"]:
                add(plane, body, request["resourceType"], request["amount"], 0)
        elif body.get("kind") == GRANT.kind and not body["metadata"].get("deletionTimestamp"):
            for allowance in body["spec"]["allowances"]:
                amount = sum(bucket["amount"] for bucket in allowance["buckets"])
                add(plane, body, allowance["resourceType"], 0, amount)
    return totals


def quota_problem(before: Mapping[tuple[str, str, str], tuple[int, int]], after: Totals) -> str:
    """Return what was granted between the two states beyond both limits, or the empty string."""
    for key in sorted(after):
        granted, limit = after[key]
        granted_before, limit_before = before.get(key, (0, 0))
        if granted > granted_before and granted > max(limit, limit_before):
            plane, consumer, resource_type = key
            return f"I2: {plane}: {consumer} has {granted} of {limit} {resource_type}"
    return ""


def _is_true(body: JsonObject, type_: str) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)


_PREFIX = "instance-"


def i2_within_the_limit(state: ClusterState, change: RowChange) -> str:
    """I2: nothing is granted beyond the limit. Checked when a claim becomes granted. A decision
    that was made before a grant was deleted may be committed just after it."""
    after, before = change.after, change.before
    if after is None or not is_true(after, GRANTED):
        return ""
    if before is not None and is_true(before, GRANTED):
        return ""
    rows = [
        (change.plane, row)
        for key, row in state.rows[change.plane].items()
        if key.resource in (CLAIM.resource, GRANT.resource)
    ]
    earlier = [(plane, row) for plane, row in rows if row is not after]
    for (plane, _), (deleted_s, grant) in state.deleted_grants.items():
        if plane == change.plane and state.now() - deleted_s < IN_FLIGHT_S:
            earlier.append((plane, grant))
    return quota_problem(quota_totals(earlier), quota_totals(rows))


def i2_claim_outlives_its_machine(state: ClusterState, change: RowChange) -> str:
    """I2: quota is not released while its machine runs."""
    before = change.before
    if change.after is not None or before is None or not is_true(before, GRANTED):
        return ""
    own_labels = before["metadata"].get("labels", {})
    cell, name = (
        f"cell/{own_labels.get(labels.SOURCE_CLUSTER)}",
        change.key.name.removeprefix(_PREFIX),
    )
    slot = f"{own_labels.get(labels.INSTANCE_NAMESPACE)}/{name}"
    if cell in state.emptied_planes or any(plane == cell for plane, _ in state.tampered):
        return ""  # the record of the machine is lost
    if cell in state.abandoned_cells:
        return ""
    if _is_released_with_namespace(state, change):
        return ""
    for plane, machine_id in state.machines():
        lied_about = machine_id in state.providers[plane].lied_about
        if plane != cell or machine_id.rpartition("/")[0] != slot or lied_about:
            continue
        if not _was_started_by_late_write(state, cell, slot):
            return f"I2: {change.plane} {change.key.name} is released, {cell} {machine_id} runs"
    return ""


def _was_started_by_late_write(state: ClusterState, cell: str, slot: str) -> bool:
    """Return True if a write that arrived late recreated a Server whose Instance was gone.

    The cell deletes that Server as soon as it observes it.
    """
    namespace, _, name = slot.partition("/")
    rows = state.rows.get(cell, {})
    server = rows.get(ObjectKey(SERVER.resource, namespace, name))
    if not state.writes_come_late or server is None:
        return False
    instance = rows.get(ObjectKey(INSTANCE.resource, namespace, name))
    owner = server["metadata"].get("labels", {}).get(labels.INSTANCE_UID)
    return instance is None or instance["metadata"]["uid"] != owner


def _is_released_with_namespace(state: ClusterState, change: RowChange) -> bool:
    """Return True if the namespace is being deleted and the cell is unreachable: the quota is then
    released with the namespace."""
    assert change.before is not None
    namespace = state.rows[change.plane].get(
        ObjectKey(NAMESPACE.resource, "", change.key.namespace)
    )
    if namespace is None or not is_terminating(namespace):
        return False
    cell = change.before["metadata"].get("labels", {}).get(labels.SOURCE_CLUSTER, "")
    known = state.rows.get(HUB, {}).get(ObjectKey(CLUSTER.resource, "", cell))
    return known is None or not is_true(known, "Ready")


def i4_gate_goes_with_its_grant(state: ClusterState, change: RowChange) -> str:
    """I4: an instance loses its Quota gate only while its slot has a granted claim of its workload,
    and the gate is never added again."""
    before, after = change.before, change.after
    if not change.plane.startswith("cell/") or before is None or after is None:
        return ""
    if (change.plane, change.key.name) in state.tampered:
        return ""
    was, is_now = _has_gate(before), _has_gate(after)
    if is_now and not was:
        return f"I4: {change.plane} {change.key.name} got its {QUOTA} gate back"
    if was and not is_now and not any(_granted_claims(state, change)):
        return f"I4: {change.plane} {change.key.name} lost its {QUOTA} gate without a grant"
    return ""


def _has_gate(instance: JsonObject) -> bool:
    gates = instance.get("spec", {}).get("controller", {}).get("schedulingGates") or ()
    return any(gate.get("name") == QUOTA for gate in gates)


def _granted_claims(state: ClusterState, change: RowChange) -> Iterator[ObjectKey]:
    """Yield the granted claims of the slot in all projects. Those of an earlier workload, whose
    instances had the same names, do not count."""
    assert change.after is not None
    workload = change.after["metadata"].get("labels", {}).get(labels.WORKLOAD_UID)
    location = (change.plane.partition("/")[2], change.key.namespace)
    for plane in state.rows:
        if not plane.startswith("project/"):
            continue
        for key, row in state.rows_of(plane, CLAIM.resource):
            own_labels = row["metadata"].get("labels", {})
            found_location = (
                own_labels.get(labels.SOURCE_CLUSTER),
                own_labels.get(labels.INSTANCE_NAMESPACE),
            )
            named = key.name == f"{_PREFIX}{change.key.name}"
            is_own = own_labels.get(labels.WORKLOAD_UID, workload) == workload
            if named and is_own and found_location == location and is_true(row, GRANTED):
                yield key


def is_quota_scarce(state: ClusterState, expected: ExpectedState) -> bool:
    """Return True if quota does not suffice for everything, including instances of operators."""
    return expected.has_scarce_quota or any(
        expected.demand(project) > expected.allowed - _count_claims_of_operators(state, project)
        for project in (expected.projects if expected.allowed < PLENTY else ())
    )


def i2_grants_are_used_up(state: ClusterState, expected: ExpectedState) -> str:
    """I2, I6: each project runs the desired number of machines, or as many as its grant allows.

    A workload that is stopped or suspended runs no machines, and may hold quota without one.
    """
    running = _running(state, expected)
    halted = {project for project, _ in halted_workloads(state, expected)}
    for project in expected.projects:
        desired = min(
            expected.demand(project), expected.allowed - _count_claims_of_operators(state, project)
        )
        found = running[project] - _count_machines_without_grant(state, expected, project)
        if found > expected.allowed:
            return f"I2: {project} runs {found} machines, {expected.allowed} are allowed"
        # Quota of a lost cell stays granted.
        if not expected.lost and project not in halted and found != desired:
            return f"{project} runs {found} machines, {desired} are desired and allowed"
    return ""


def _count_claims_of_operators(state: ClusterState, project: str) -> int:
    """Count the granted claims of instances that an operator created."""
    claims = state.rows_of(project_plane(project), CLAIM.resource)
    return sum("-poison" in key.name and is_true(row, GRANTED) for key, row in claims)


def i22_waiting_instances_report_quota(state: ClusterState, expected: ExpectedState) -> str:
    """I22: an instance without a machine reports that it waits for quota, on its cell and in its
    project."""
    alive = {(cell, machine_id.rpartition("/")[0]) for cell, machine_id in state.machines()}
    for cell in state.providers:
        if cell.partition("/")[2] in expected.lost:
            continue
        for key, row in state.rows_of(cell, INSTANCE.resource):
            if (cell, f"{key.namespace}/{key.name}") in alive or key.name.startswith("poison"):
                continue
            control = row["spec"].get("controller", {})
            if control.get("suspended") or control.get("stopped"):
                continue
            if _reason(row, QUOTA_GRANTED) not in TOO_LITTLE_QUOTA:
                return f"{cell} {key.name} has no machine and does not report missing quota"
            shown = [r for r in _projections(state, expected, key) if not is_terminating(r)]
            if [_reason(r, "Ready") for r in shown] != [Reason.PENDING_QUOTA]:
                return f"{key.name} waits for quota and its project does not show it"
    return ""


def i2_buckets_add_up(state: ClusterState, expected: ExpectedState) -> str:
    """I2, I6: the usage in buckets equals the sum of the granted claims."""
    for project in expected.projects:
        plane = project_plane(project)
        rows = [(plane, row) for row in state.rows.get(plane, {}).values()]
        used = Counter[str]()
        for (_, _, resource_type), (granted, _) in quota_totals(rows).items():
            used[resource_type] += granted
        for _, row in state.rows_of(plane, BUCKET.resource):
            shown = (row.get("status") or {}).get("allocated", 0)
            if shown != used[row["spec"]["resourceType"]]:
                return f"{plane} shows {shown} of {row['spec']['resourceType']} as used"
    return ""


def i2_no_claim_outlives_its_slot(state: ClusterState, expected: ExpectedState) -> str:
    """I2, I6: the claim of a deleted instance on a reachable cell is released."""
    for project in expected.projects if not state.tampered else ():
        for key, row in state.rows_of(project_plane(project), CLAIM.resource):
            own_labels = row["metadata"].get("labels", {})
            cell = own_labels.get(labels.SOURCE_CLUSTER, "")
            if cell not in expected.cells or cell in expected.lost:
                continue
            location, name = (
                own_labels.get(labels.INSTANCE_NAMESPACE, ""),
                key.name.removeprefix(_PREFIX),
            )
            slot = ObjectKey(INSTANCE.resource, location, name)
            if slot not in state.rows.get(cell_plane(cell), {}):
                return f"{project} {key.name}: {cell} has no such instance"
    return ""


def i2_granted_instances_have_claims(state: ClusterState, expected: ExpectedState) -> str:
    """I2, I6: an instance on a reachable cell whose quota is granted has its claim."""
    namespaces = {
        f"ns-{row['metadata']['uid']}": (project_plane(project), key.name)
        for project in expected.projects
        for key, row in state.rows_of(project_plane(project), NAMESPACE.resource)
    }
    cells = () if state.tampered else (c for c in expected.cells if c not in expected.lost)
    for cell in cells:
        for key, row in state.rows_of(cell_plane(cell), INSTANCE.resource):
            if key.namespace not in namespaces or not is_true(row, QUOTA_GRANTED):
                continue
            plane, namespace = namespaces[key.namespace]
            claim = ObjectKey(CLAIM.resource, namespace, f"{_PREFIX}{key.name}")
            if claim not in state.rows.get(plane, {}):
                return f"{plane} has no claim of {key.name} on {cell}"
    return ""


def i6_workloads_count_what_runs(state: ClusterState, expected: ExpectedState) -> str:
    """I6, I7: the ready replicas of a project's workloads equal its running machines."""
    running = _running(state, expected)
    for project in expected.projects:
        rows = dict(state.rows_of(project_plane(project), WORKLOAD.resource))
        if sorted(key.name for key in rows) != sorted(
            n for p, n in expected.desired if p == project
        ):
            return f"{project} has the workloads {sorted(key.name for key in rows)}"
        ready = sum((row.get("status") or {}).get("readyReplicas", 0) for row in rows.values())
        if not expected.lost and ready != running[project]:
            return f"{project} reports {ready} ready, {running[project]} machines run"
    return ""


def _running(state: ClusterState, expected: ExpectedState) -> Counter[str]:
    """Count the machines of each project on the cells that are not lost."""
    projects = _projects_by_namespace(state, expected)
    found: Counter[str] = Counter()
    for cell, machine_id in state.machines():
        if state.providers[cell].machines[machine_id].suspended_from_s is not None:
            continue
        # An instance that an operator created without gates needs no grant.
        if cell.partition("/")[2] not in expected.lost and "/poison" not in machine_id:
            found[projects.get(machine_id.partition("/")[0], "")] += 1
    return found


def _count_machines_without_grant(
    state: ClusterState, expected: ExpectedState, project: str
) -> int:
    """Count the machines that returned with their cell after the quota of the cell was released.

    They keep running, also if their new claims are refused.
    """
    running = {
        tuple(machine_id.split("/")[:2])
        for cell, machine_id in state.machines()
        if cell.partition("/")[2] in expected.returned
    }
    refused = (
        (row["metadata"].get("labels", {}).get(labels.INSTANCE_NAMESPACE), key.name)
        for key, row in state.rows_of(project_plane(project), CLAIM.resource)
        if not is_true(row, GRANTED)
    )
    return sum((namespace, name.removeprefix(_PREFIX)) in running for namespace, name in refused)


def _projects_by_namespace(state: ClusterState, expected: ExpectedState) -> dict[str, str]:
    """Return the project of each namespace on a cell."""
    return {
        f"ns-{row['metadata']['uid']}": project
        for project in expected.projects
        for _, row in state.rows_of(project_plane(project), NAMESPACE.resource)
    }


def _projections(
    state: ClusterState, expected: ExpectedState, original: ObjectKey
) -> Iterator[JsonObject]:
    """Yield the copies of the instance in its project. Another project may use the same name."""
    project = _projects_by_namespace(state, expected).get(original.namespace)
    if project is not None:
        for key, row in state.rows_of(project_plane(project), INSTANCE.resource):
            if key.name == original.name:
                yield row


def _reason(row: JsonObject, type_: str) -> str:
    found = condition(row, type_)
    return str(found["reason"]) if found is not None else ""
