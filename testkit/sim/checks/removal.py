"""Check of removals at every commit: I37.

I37: an object is removed from the hub or from a cell only when its source is gone in the plane that
owns it. The rows of that plane are the ground truth at the moment of the commit, whatever caches
contain. A removal begins when the deletion timestamp is set, or when an object without finalizers
is deleted.

Owners: the project owns deployments, namespaces and the data that they refer to; the hub owns
bindings, Works and what cells receive by a Work; the cell owns instances and Servers. Each function
below states when its source is gone. A deployment that leaves a city (removed from the workload, or
replaced by a fallback) ends in the project; a cell that leaves or moves to another city ends the
Works on the hub. A drained cell keeps what it has.

An Instance on a cell belongs to a slot of its deployment: I14, I28 and I35 decide whether it may be
removed. What is in a terminating namespace goes with the namespace, whose own removal is checked.
Worlds in which an operator changed objects of controllers, in which a plane was restored from a
backup, or in which writes arrive late, are not checked. A source that is younger than
``IN_TRANSIT_S`` is excused: the delete may have been sent before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.referenced_data import references, sources
from datum_compute.api.compute.server import Server, runs_other_spec
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER,
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    PROJECT,
    SECRET,
    SERVER,
    WORK,
    kind_of,
)
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    cell_plane,
    execution_namespace,
    source_uid,
)
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.promises import MOVE_OBSERVED_S
from testkit.sim.checks.state import ClusterState, RowChange, is_terminating

# How long a delete may be on its way to a slow host after the source was read.
IN_TRANSIT_S = 5.0

# The plane and the key of an object that is a source.
Place = tuple[str, ObjectKey]


def i37_source_is_gone(state: ClusterState, change: RowChange) -> str:
    before, after = change.before, change.after
    if before is None or is_terminating(before) or state.restored or state.writes_come_late:
        return ""
    if (after is not None and not is_terminating(after)) or state.tampered:
        return ""
    role = change.plane.partition("/")[0]
    find_source = _SOURCES.get((role, change.key.resource))
    if find_source is None or state.is_namespace_terminating(change.plane, change.key.namespace):
        return ""
    source = find_source(state, change, before)
    if source is None or state.now() - state.created_s.get(source, -IN_TRANSIT_S) < IN_TRANSIT_S:
        return ""
    plane, key = source
    removed = f"{change.plane} {change.key.resource} {change.key.namespace}/{change.key.name}"
    return f"I37: {removed} is removed; {plane} has its source {key.resource} {key.name}"


# --- sources in projects


def _source_of_hub_namespace(
    state: ClusterState, change: RowChange, _before: JsonObject
) -> Place | None:
    """Of a hub namespace and its policy: the project namespace with the uid in the name."""
    return _project_namespace(state, change.key.name)


def _source_of_hub_deployment(
    state: ClusterState, change: RowChange, before: JsonObject
) -> Place | None:
    """Of a copy: the project's deployment of this name, in the project namespace."""
    namespace = _project_namespace(state, change.key.namespace)
    if namespace is None or labels.SOURCE_GENERATION not in _annotations(before):
        return None
    plane, key = namespace
    source = _live(state, plane, ObjectKey(DEPLOYMENT.resource, key.name, change.key.name))
    return source if source and _same_workload(before, state.rows[plane][source[1]]) else None


def _source_of_hub_data(state: ClusterState, change: RowChange, before: JsonObject) -> Place | None:
    """Return a deployment that refers to the ConfigMap or Secret, and did a moment ago."""
    namespace = _project_namespace(state, change.key.namespace)
    if namespace is None or labels.REFERENCED_DATA not in before["metadata"].get("labels", {}):
        return None
    plane, key = namespace
    for found, row in state.rows_of(plane, DEPLOYMENT.resource):
        changed_s = state.former_spec.get((plane, found), (-IN_TRANSIT_S, {}))[0]
        if found.namespace != key.name or state.now() - changed_s < IN_TRANSIT_S:
            continue
        is_active = labels.REFERENCED_DATA_FINALIZER in row["metadata"].get("finalizers", ())
        if is_active and not is_terminating(row) and _refers_to(row, change.key):
            return plane, found
    return None


def _refers_to(deployment: JsonObject, data: ObjectKey) -> bool:
    template = from_json(deployment, WorkloadDeployment).spec.template
    kind = CONFIG_MAP if data.resource == CONFIG_MAP.resource else SECRET
    wanted = sources(references(template))
    return any((source.kind, source.name) == (kind.kind, data.name) for source in wanted)


def _project_namespace(state: ClusterState, hub_namespace: str) -> Place | None:
    """Return the project namespace of a hub namespace, if it and its project are live."""
    uid = source_uid(hub_namespace)
    for plane in state.rows if uid else ():
        role, _, project = plane.partition("/")
        if role != "project" or not _live(state, PLATFORM, _cluster_scoped(PROJECT, project)):
            continue
        for key, row in state.rows_of(plane, NAMESPACE.resource):
            if row["metadata"]["uid"] == uid and not is_terminating(row):
                return plane, key
    return None


# --- sources on the hub and on cells


def _source_of_hub_instance(
    state: ClusterState, change: RowChange, before: JsonObject
) -> Place | None:
    """Of a copy: the instance on its cell, while the hub has the deployment."""
    cell, _, uid = _annotations(before).get(labels.COPY_OF, "").rpartition("/")
    if not cell or not _is_member(state, cell):
        return None
    name = before["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME, "")
    owner = ObjectKey(DEPLOYMENT.resource, change.key.namespace, name)
    deployment = state.rows[HUB].get(owner)
    owners = [reference["uid"] for reference in before["metadata"].get("ownerReferences", ())]
    if deployment is None or is_terminating(deployment):
        return None
    if deployment["metadata"]["uid"] not in owners:
        return None
    return _live(state, cell_plane(cell), change.key, uid)


def _source_of_binding(state: ClusterState, _change: RowChange, before: JsonObject) -> Place | None:
    """Of a binding: its object, by uid."""
    resource = before["spec"]["resource"]
    kind = kind_of(resource["apiVersion"], resource["kind"])
    if kind is None:
        return None
    key = ObjectKey(kind.resource, resource.get("namespace", ""), resource["name"])
    return _live(state, HUB, key, resource["uid"])


def _source_of_work(state: ClusterState, change: RowChange, before: JsonObject) -> Place | None:
    """Of a Work: its binding, while the cell is listed, or is the only one of the city."""
    cell = change.key.namespace.removeprefix(execution_namespace(""))
    uid = before["metadata"].get("labels", {}).get(labels.BINDING_ID, "")
    binding = _binding(state, uid)
    if binding is None or not _is_member(state, cell):
        return None
    resource = state.rows[HUB][binding]["spec"]["resource"]
    template = ObjectKey(DEPLOYMENT.resource, resource.get("namespace", ""), resource["name"])
    deployment = state.rows[HUB].get(template)
    manifest = before["spec"]["workload"]["manifests"][0]
    if deployment is not None and not _same_workload(manifest, deployment):
        return None
    _, moved_s = state.former_city.get(cell_plane(cell), ("", -MOVE_OBSERVED_S))
    if state.now() - moved_s < MOVE_OBSERVED_S:
        return None  # the hub may still use the former city of the cell
    row = state.rows[HUB][binding]
    is_listed = any(target["name"] == cell for target in row["spec"].get("clusters", ()))
    if is_listed or _serves_city_of(state, cell, before):
        return HUB, binding
    return None


def _binding(state: ClusterState, uid: str) -> ObjectKey | None:
    """Return the live binding with this uid."""
    for resource in (BINDING.resource, CLUSTER_BINDING.resource):
        for key, row in state.rows_of(HUB, resource):
            if row["metadata"]["uid"] == uid:
                return None if is_terminating(row) else key
    return None


def _serves_city_of(state: ClusterState, cell: str, work: JsonObject) -> bool:
    """Return True if the Work is that of a deployment in a city that only this cell serves."""
    manifest = work["spec"]["workload"]["manifests"][0]
    if manifest["kind"] != DEPLOYMENT.kind:
        return False
    return state.cells_of(manifest["spec"]["cityCode"]) == [cell_plane(cell)]


def _is_member(state: ClusterState, cell: str) -> bool:
    is_abandoned = cell_plane(cell) in state.abandoned_cells
    return not is_abandoned and _live(state, HUB, _cluster_scoped(CLUSTER, cell)) is not None


def _source_of_cell_copy(
    state: ClusterState, change: RowChange, before: JsonObject
) -> Place | None:
    """Of what a Work carried to the cell: the Work."""
    annotations = _annotations(before)
    namespace, name = annotations.get(labels.WORK_NAMESPACE), annotations.get(labels.WORK_NAME)
    if not namespace or not name or not _is_member(state, change.plane.partition("/")[2]):
        return None
    source = _live(state, HUB, ObjectKey(WORK.resource, namespace, name))
    if source is None:
        return None
    manifest = state.rows[HUB][source[1]]["spec"]["workload"]["manifests"][0]
    return source if _same_workload(before, manifest) else None


def _source_of_server(state: ClusterState, change: RowChange, before: JsonObject) -> Place | None:
    """Of a Server: its Instance, by uid, while the machine was started from the Server's spec."""
    has_machine = bool(before.get("status", {}).get("specFingerprint"))
    if has_machine and runs_other_spec(from_json(before, Server)):
        return None  # its machine cannot be changed
    uid = before["metadata"].get("labels", {}).get(labels.INSTANCE_UID, "")
    key = ObjectKey(INSTANCE.resource, change.key.namespace, change.key.name)
    return _live(state, change.plane, key, uid)


_SOURCES: dict[tuple[str, str], Callable[[ClusterState, RowChange, JsonObject], Place | None]] = {
    ("hub", NAMESPACE.resource): _source_of_hub_namespace,
    ("hub", CLUSTER_POLICY.resource): _source_of_hub_namespace,
    ("hub", DEPLOYMENT.resource): _source_of_hub_deployment,
    ("hub", CONFIG_MAP.resource): _source_of_hub_data,
    ("hub", SECRET.resource): _source_of_hub_data,
    ("hub", INSTANCE.resource): _source_of_hub_instance,
    ("hub", BINDING.resource): _source_of_binding,
    ("hub", CLUSTER_BINDING.resource): _source_of_binding,
    ("hub", WORK.resource): _source_of_work,
    ("cell", NAMESPACE.resource): _source_of_cell_copy,
    ("cell", DEPLOYMENT.resource): _source_of_cell_copy,
    ("cell", CONFIG_MAP.resource): _source_of_cell_copy,
    ("cell", SECRET.resource): _source_of_cell_copy,
    ("cell", SERVER.resource): _source_of_server,
}


def _live(state: ClusterState, plane: str, key: ObjectKey, uid: str = "") -> Place | None:
    """Return the place of an object that exists and is not terminating."""
    row = state.rows.get(plane, {}).get(key)
    if row is None or is_terminating(row):
        return None
    return (plane, key) if not uid or row["metadata"]["uid"] == uid else None


def _same_workload(one: JsonObject, other: JsonObject) -> bool:
    """Return False for deployments of two workloads. An earlier one may have had the same name."""
    found = {row.get("spec", {}).get("workloadRef", {}).get("uid", "") for row in (one, other)}
    return len(found - {""}) < 2


def _cluster_scoped(kind: KindInfo[Any], name: str) -> ObjectKey:
    return ObjectKey(kind.resource, "", name)


def _annotations(row: JsonObject) -> dict[str, str]:
    found: dict[str, str] = row["metadata"].get("annotations", {})
    return found
