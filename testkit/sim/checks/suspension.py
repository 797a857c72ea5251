"""Checks of suspended projects and stopped workloads: I32, I33 and I34.

I32: a suspension changes no identity. An instance of a deployment that is suspended or stopped is
not deleted, and keeps its addresses. Its Server is not deleted either.

I33: the machine of a live Server is never removed.

I34: the machines of a cell have distinct addresses, stopped machines included.

A deletion is excused if a user or operator requested it: the deployment or its namespace is
deleted, or an object was edited or deleted by hand.
"""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.kinds import CONSUMER, DEPLOYMENT, INSTANCE, PROJECT, SERVER
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, project_plane
from datum_compute.api.quota import SERVICE as COMPUTE
from datum_compute.planning.rollout.suspension import HALT_REASONS
from datum_compute.store.journal import ObjectKey
from testkit.sim.actors.users import DesiredWorkload
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.state import ClusterState, RowChange, condition, is_terminating

# A controller may have decided with a spec that is this old.
SPEC_KNOWN_S = 5.0


def existing_projects(state: ClusterState) -> set[str]:
    return {key.name for key, _ in state.rows_of(PLATFORM, PROJECT.resource)}


def entitled_projects(state: ClusterState) -> set[str]:
    """Return the projects whose consumer of compute is Active, not suspended and not
    terminating."""
    return {
        row["spec"]["consumerProjectRef"]["name"]
        for _, row in state.rows_of(PLATFORM, CONSUMER.resource)
        if row["spec"]["serviceRef"]["name"] == COMPUTE
        and row.get("status", {}).get("phase") == "Active"
        and not row["spec"].get("suspended")
        and not is_terminating(row)
    }


def halted_workloads(state: ClusterState, expected: ExpectedState) -> set[tuple[str, str]]:
    """Return the desired workloads that must not run: stopped, or of a suspended project."""
    suspended = existing_projects(state) - entitled_projects(state)
    return {
        key for key, workload in expected.desired.items() if workload.stopped or key[0] in suspended
    }


def find_halt_problem(row: JsonObject, desired: DesiredWorkload) -> str:
    """Return what is wrong with the status of a workload that must not run."""
    if is_terminating(row):
        return "it is terminating"
    status, available = row.get("status", {}), condition(row, "Available")
    if status.get("readyReplicas", 0):
        return f"it has ready replicas, and is stopped or suspended: {desired}"
    if available is None or available["reason"] not in HALT_REASONS:
        return f"it does not report its halt: {available}"
    if status.get("observedGeneration") != row["metadata"]["generation"]:
        return "its status is about an older generation"
    return ""


def i6_instances_carry_the_halt(state: ClusterState, expected: ExpectedState) -> str:
    """I6: the deployments of a halted workload are halted, and those of no other workload."""
    halted = halted_workloads(state, expected)
    for project in expected.projects:
        for key, row in state.rows_of(project_plane(project), DEPLOYMENT.resource):
            owner = (project, row["spec"]["workloadRef"]["name"])
            is_edited = any(named == key.name for _, named in state.tampered)
            if owner in expected.desired and not is_edited and _is_halted(row) != (owner in halted):
                return f"{project} {key.name} is halted: {_is_halted(row)}"
    return ""


def i32_suspension_changes_no_identity(state: ClusterState, change: RowChange) -> str:
    before, after = change.before, change.after
    if before is None or is_terminating(before) or not change.plane.startswith("cell/"):
        return ""
    deployment = _halted_deployment(state, change)
    if deployment is None or not _is_halted_copy(change.key, before):
        return ""
    where = f"{change.plane} {change.key.resource} {change.key.name}"
    if after is None or is_terminating(after):
        return f"I32: {where} is deleted while its deployment is suspended or stopped"
    former = _addresses(before) if change.key.resource == INSTANCE.resource else []
    if former and former != _addresses(after):
        return f"I32: {where} had {former}, now {_addresses(after)}"
    return ""


def _halted_deployment(state: ClusterState, change: RowChange) -> JsonObject | None:
    """Return the deployment if it has been halted for a while; None if the change is excused."""
    namespace, name = change.key.namespace, change.key.name.rpartition("-")[0]
    key = ObjectKey(DEPLOYMENT.resource, namespace, name)
    row = state.rows.get(change.plane, {}).get(key)
    if row is None or is_terminating(row) or not _is_halted(row):
        return None
    changed_s, former = state.former_spec.get((change.plane, key), (0.0, {}))
    if change.at_s - changed_s < SPEC_KNOWN_S and not _is_halted({"spec": former}):
        return None
    if state.is_namespace_terminating(change.plane, namespace):
        return None
    if change.plane in state.restored or HUB in state.restored or state.tampered:
        return None
    return row


def _is_halted_copy(key: ObjectKey, row: JsonObject) -> bool:
    """Return True if the Instance or Server has received the halt."""
    spec = row.get("spec", {})
    if key.resource == SERVER.resource:
        return bool(spec.get("suspended"))
    return _is_halted({"spec": spec.get("controller", {})})


def _is_halted(row: JsonObject) -> bool:
    spec = row.get("spec", {})
    return bool(spec.get("suspended") or spec.get("stopped"))


def _addresses(instance: JsonObject) -> list[str]:
    interfaces = (instance.get("status") or {}).get("networkInterfaces") or ()
    return [a["address"] for i in interfaces for a in i.get("addresses") or ()]


def find_removed_machine(state: ClusterState, cell: PlaneName, machine_id: str) -> str:
    """I33. Called when the removal of a machine is requested."""
    provider = state.providers[cell]
    namespace, name, uid = machine_id.split("/")
    rows = state.rows.get(cell, {})
    instance = rows.get(ObjectKey(INSTANCE.resource, namespace, name))
    server = rows.get(ObjectKey(SERVER.resource, namespace, name))
    if server is None or is_terminating(server) or server["metadata"]["uid"] != uid:
        return ""
    if instance is None or is_terminating(instance) or machine_id in provider.lied_about:
        return ""
    if state.tampered or cell in state.restored:
        return ""
    if server["metadata"].get("labels", {}).get(labels.INSTANCE_UID) != instance["metadata"]["uid"]:
        return ""
    return f"I33: {cell} {machine_id} is removed, and its Server is live"


def i34_machines_have_distinct_addresses(state: ClusterState, _expected: ExpectedState) -> str:
    for cell, provider in state.providers.items():
        owners: dict[str, str] = {}
        for machine_id, machine in provider.alive().items():
            if machine_id in provider.lied_about or "/poison" in machine_id:
                continue
            for address in machine.addresses:
                other = owners.setdefault(address, machine_id)
                if other != machine_id:
                    return f"I34: {address} on {cell} belongs to {other} and {machine_id}"
    return ""
