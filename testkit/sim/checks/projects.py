"""Checks of projects: deleted projects leave nothing, and nothing runs without access.

Which projects exist and which may use compute is read from the rows of the platform. The last
checks are about what belongs together: copies on the hub without a source, and objects that have
the name of one that belonged to another workload.
"""

from __future__ import annotations

from collections.abc import Iterator

from datum_compute.api import labels
from datum_compute.api.kinds import (
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    IP_ALLOCATION,
    NAMESPACE,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    cell_plane,
    decode_project_label,
    federation_namespace,
    project_plane,
)
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.state import ClusterState, RowChange, is_terminating
from testkit.sim.checks.suspension import entitled_projects, existing_projects


def i5_deleted_projects_leave_nothing(state: ClusterState, expected: ExpectedState) -> str:
    """I5: no plane, hub namespace, prefix or consumer belongs to a project that does not exist."""
    existing = existing_projects(state)
    for plane in state.rows:
        if plane.startswith("project/") and plane.partition("/")[2] not in existing:
            return f"{plane} exists, its project does not"
    for key, row in state.rows_of(PLATFORM, CONSUMER.resource):
        if row["spec"]["consumerProjectRef"]["name"] not in existing:
            return f"consumer {key.name} exists, its project does not"
    if expected.lost or state.emptied_planes:
        return ""  # an unreachable cell may hold the rest
    for key, row in state.rows_of(PLATFORM, IP_ALLOCATION.resource):
        if row["spec"]["project"] not in existing:
            return f"{key.name} is allocated to {row['spec']['project']}, which does not exist"
    for plane in (HUB, *map(cell_plane, expected.cells)):
        for key, row in state.rows.get(plane, {}).items():
            of = decode_project_label(
                row["metadata"].get("labels", {}).get(labels.UPSTREAM_CLUSTER, "")
            )
            if of and of not in existing and (plane, key.name) not in state.tampered:
                return f"{plane} {key.resource} {key.name} is of {of}, which does not exist"
    return ""


def i16_nothing_runs_without_access(state: ClusterState, expected: ExpectedState) -> str:
    """I16: every machine that is not stopped belongs to a project that may use compute.

    An instance that an operator created on a cell has no deployment that could be suspended.
    """
    entitled = entitled_projects(state)
    for cell, machine_id in state.machines():
        machine = state.providers[cell].machines[machine_id]
        if cell.partition("/")[2] in expected.lost or machine.suspended_from_s is not None:
            continue
        if "/poison" in machine_id:
            continue
        hub_namespace = ObjectKey(NAMESPACE.resource, "", machine_id.partition("/")[0])
        row = state.rows.get(cell, {}).get(hub_namespace)
        namespace_labels = row["metadata"].get("labels", {}) if row is not None else {}
        project = decode_project_label(namespace_labels.get(labels.UPSTREAM_CLUSTER, ""))
        if project and project not in entitled:
            return f"{machine_id} runs on {cell}; {project} has no access"
    return ""


def i8_first_entitled_stays(_state: ClusterState, change: RowChange) -> str:
    """I8: the time of the first grant is set once and never changes."""
    if change.before is None or change.after is None or change.key.resource != ENTITLEMENT.resource:
        return ""
    before = change.before.get("status", {}).get("entitledAt")
    after = change.after.get("status", {}).get("entitledAt")
    if before and before != after:
        return f"I8: {change.plane} {change.key.name} was entitled at {before}, now {after}"
    return ""


def i6_orphan_copies_are_quarantined(state: ClusterState, _expected: ExpectedState) -> str:
    """I6: a copy that belongs to no slot of a deployment is quarantined after its grace period."""
    hub_namespaces = {key.name: _source(row) for key, row in state.rows_of(HUB, NAMESPACE.resource)}
    for key, row in state.rows_of(HUB, INSTANCE.resource):
        project, namespace = source = _source(row)
        has_source = project and namespace and hub_namespaces.get(key.namespace, source) == source
        marked = labels.QUARANTINE_FINGERPRINT in row["metadata"].get("annotations", {})
        if is_terminating(row) or marked:
            continue
        if not has_source:
            return f"the hub's copy {key.name} has no source and is not quarantined"
        if not _has_slot_name(key.name, row):
            return f"the hub's copy {key.name} has no ordinal and is not quarantined"
    return ""


def _has_slot_name(name: str, row: JsonObject) -> bool:
    deployment = row["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME)
    prefix, _, end = name.rpartition("-")
    return prefix == (deployment or prefix) and end.isdecimal() and str(int(end)) == end


def i6_hub_namespaces_name_their_project(state: ClusterState, expected: ExpectedState) -> str:
    """I6: the labels of a hub namespace with deployments name its project and namespace."""
    used = {key.namespace for key, _ in state.rows_of(HUB, DEPLOYMENT.resource)}
    for project in expected.projects:
        for key, row in state.rows_of(project_plane(project), NAMESPACE.resource):
            hub_namespace = federation_namespace(row["metadata"]["uid"])
            found = state.rows.get(HUB, {}).get(ObjectKey(NAMESPACE.resource, "", hub_namespace))
            if found is None or hub_namespace not in used or is_terminating(found):
                continue
            if (source := _source(found)) != (project, key.name):
                return f"the labels of {hub_namespace} name {source}, it is of {project}/{key.name}"
    return ""


def _source(row: JsonObject) -> tuple[str | None, str]:
    """Return the project and namespace that the labels of a hub object name."""
    source = row["metadata"].get("labels", {})
    project = decode_project_label(source.get(labels.UPSTREAM_CLUSTER, ""))
    return project, source.get(labels.UPSTREAM_NAMESPACE, "")


# --- names that several workloads have


def i36_one_workload_for_each_object(state: ClusterState, change: RowChange) -> str:
    """I36: an object never changes its workload, and never has an owner of another workload."""
    if change.after is None or (change.plane, change.key.name) in state.tampered:
        return ""
    uid = _workload_uid(change.key, change.after)
    if not uid:
        return ""
    where = f"{change.plane} {change.key.resource} {change.key.namespace}/{change.key.name}"
    if change.before is not None:
        earlier = _workload_uid(change.key, change.before)
        is_same_object = change.before["metadata"]["uid"] == change.after["metadata"]["uid"]
        if is_same_object and earlier not in ("", uid):
            return f"I36: {where} was of workload {earlier}, now of {uid}"
    for owner in _owners(state, change):
        if owner != uid:
            return f"I36: {where} of workload {uid} is owned by one of {owner}"
    return ""


def _owners(state: ClusterState, change: RowChange) -> Iterator[str]:
    """Yield the workload of each deployment that controls an instance."""
    assert change.after is not None
    if change.key.resource != INSTANCE.resource:
        return
    for reference in change.after["metadata"].get("ownerReferences", ()):
        key = ObjectKey(DEPLOYMENT.resource, change.key.namespace, reference["name"])
        owner = state.rows[change.plane].get(key)
        is_tampered = (change.plane, key.name) in state.tampered
        if owner is not None and owner["metadata"]["uid"] == reference["uid"] and not is_tampered:
            yield _workload_uid(key, owner)


def _workload_uid(key: ObjectKey, row: JsonObject) -> str:
    if key.resource == DEPLOYMENT.resource:
        return str(row.get("spec", {}).get("workloadRef", {}).get("uid", ""))
    return str(row["metadata"].get("labels", {}).get(labels.WORKLOAD_UID, ""))
