"""Checks of a settled world: desired state equals actual state, and nothing is left over.

Each check returns what is missing, or the empty string. Cells in ``lost`` never recover: nothing is
expected of them, and objects that depend on them must report so. ``find_missing`` runs all checks.
To add one, write a function and add it to ``_CHECKS``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from datum_compute.api import labels
from datum_compute.api.compute.workload import Workload
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.conditions import FALSE, ConditionValue, Reason
from datum_compute.api.kinds import (
    CLAIM,
    CLUSTER,
    CLUSTER_POLICY,
    DEPLOYMENT,
    INSTANCE,
    IP_ALLOCATION,
    NAMESPACE,
    REVISION,
    SERVER,
    WORK,
    WORKLOAD,
    kind_of,
)
from datum_compute.api.meta.codec import JsonObject, canonical, encode, from_json
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    cell_plane,
    deployment_of,
    execution_namespace,
    project_plane,
)
from datum_compute.planning.reasons import as_deployment_reason, rank_of, worst_cause
from datum_compute.planning.rollout.suspension import HALT_REASONS, NO_REACHABLE_CELL
from datum_compute.planning.workload.history import recorded_fields, without_restart
from datum_compute.planning.workload.revisions import REVISIONS_KEPT
from datum_compute.store.journal import ObjectKey
from testkit.sim.actors.users import NAMESPACE_NAME, DesiredWorkload
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.fallback import cities_in_use, i16_shares_of_lost_cities_have_moved
from testkit.sim.checks.prefixes import i6_unused_subnets_are_deleted
from testkit.sim.checks.projects import (
    i5_deleted_projects_leave_nothing,
    i6_hub_namespaces_name_their_project,
    i6_orphan_copies_are_quarantined,
    i16_nothing_runs_without_access,
)
from testkit.sim.checks.quota import (
    i2_buckets_add_up,
    i2_granted_instances_have_claims,
    i2_grants_are_used_up,
    i2_no_claim_outlives_its_slot,
    i6_workloads_count_what_runs,
    i22_waiting_instances_report_quota,
    is_quota_scarce,
)
from testkit.sim.checks.state import ClusterState, condition, is_terminating, is_true
from testkit.sim.checks.suspension import (
    find_halt_problem,
    halted_workloads,
    i6_instances_carry_the_halt,
    i34_machines_have_distinct_addresses,
)
from testkit.sim.scenario.draw import NAMES

_POSITIVE_CONDITIONS = ("Available", "Ready", "ReplicasReady")


def i7_nothing_outlives_its_cell(state: ClusterState, expected: ExpectedState) -> str:
    """I7: nothing that exists only on lost cells is Available or Ready in its project."""
    for project in expected.projects if expected.lost else ():
        plane = project_plane(project)
        for name, row in _on_lost_cells(state, expected, plane):
            positive = [type_ for type_ in _POSITIVE_CONDITIONS if is_true(row, type_)]
            ready = (row.get("status") or {}).get("readyReplicas", 0)
            if positive or ready:
                return f"{plane} {name} is {positive} with {ready} ready, and its cell is lost"
    return ""


def is_of_any(instance: JsonObject, cells: frozenset[str]) -> bool:
    """Match either label, because operators edit one at a time."""
    own_labels = instance["metadata"].get("labels", {})
    return (
        own_labels.get(labels.CITY_CODE, "").lower() in cells
        or own_labels.get(labels.CELL, "") in cells
    )


def _on_lost_cells(
    state: ClusterState, expected: ExpectedState, plane: str
) -> Iterator[tuple[str, JsonObject]]:
    for key, row in state.rows_of(plane, INSTANCE.resource):
        if is_of_any(row, expected.lost) and not is_terminating(row):
            yield f"instance {key.name}", row
    for key, row in state.rows_of(plane, DEPLOYMENT.resource):
        if row["spec"].get("cityCode", "").lower() in expected.lost and not is_terminating(row):
            yield f"deployment {key.name}", row
    for key, row in state.rows_of(plane, WORKLOAD.resource):
        desired = expected.desired.get((plane.partition("/")[2], key.name))
        if desired is None or desired.fallback:
            continue  # i6_machines_are_as_desired checks that another city has its share
        if all(city.lower() in expected.lost for city in desired.cities):
            yield f"workload {key.name}", row


def i13_newest_revision_is_current(state: ClusterState, expected: ExpectedState) -> str:
    """I13: the newest revision of a workload equals its spec, consecutive revisions differ, and at
    most REVISIONS_KEPT are kept."""
    for project in expected.projects:
        plane = project_plane(project)
        rows = [row for _, row in state.rows_of(plane, REVISION.resource)]
        revisions = [from_json(row, WorkloadRevision) for row in rows]
        workloads = (row for _, row in state.rows_of(plane, WORKLOAD.resource))
        for row in (row for row in workloads if row.get("spec")):
            missing = _find_revision_problem(from_json(row, Workload), revisions)
            if missing:
                return f"{plane}: {missing}"
    return ""


def _find_revision_problem(workload: Workload, revisions: list[WorkloadRevision]) -> str:
    uid, name = workload.metadata.uid, workload.metadata.name
    own = sorted(
        (r for r in revisions if r.spec.workload_ref.uid == uid), key=lambda row: row.spec.revision
    )
    if not own:
        return f"{name} has no revision"
    recorded = [recorded_fields(revision.spec) for revision in own]
    if recorded[-1] != recorded_fields(workload.spec):
        return f"the newest revision of {name} ({own[-1].spec.revision}) differs from its spec"
    numbers = [revision.spec.revision for revision in own]
    twice = any(before == after for before, after in itertools.pairwise(recorded))
    if twice or len(set(numbers)) != len(numbers):
        return f"a change of {name} is recorded twice: {numbers}"
    return f"{len(own)} revisions of {name} are kept" if len(own) > REVISIONS_KEPT else ""


def i38_undo_restores_a_recorded_template(state: ClusterState, expected: ExpectedState) -> str:
    """I38: a rollback by a user has the template and the cities of the revision that it restores,
    and differs from the revision before it in more than a restart."""
    for project in expected.projects:
        plane = project_plane(project)
        rows = [row for _, row in state.rows_of(plane, REVISION.resource)]
        revisions = sorted(
            (from_json(row, WorkloadRevision) for row in rows),
            key=lambda row: (row.spec.workload_ref.uid, row.spec.revision),
        )
        known = {(r.spec.workload_ref.uid, r.spec.revision): r for r in revisions}
        for before, after in itertools.pairwise(revisions):
            uid, number = after.spec.workload_ref.uid, after.spec.restores
            restored = known.get((uid, number)) if number is not None else None
            if restored is None or after.spec.cause != "Change":
                continue
            if canonical(after.spec.template) != canonical(restored.spec.template):
                return f"{plane}: {after.metadata.name} differs from revision {number}"
            is_same = _without_restart_and_scale(before) == _without_restart_and_scale(after)
            if before.spec.workload_ref.uid == uid and is_same:
                return f"{plane}: {after.metadata.name} is an undo of a restart only"
    return ""


def _without_restart_and_scale(revision: WorkloadRevision) -> tuple[object, ...]:
    cities = tuple(tuple(placement.city_codes) for placement in revision.spec.placements)
    return canonical(without_restart(revision.spec.template)), cities


_OF_A_WORKLOAD = re.compile(rb'"(' + "|".join(NAMES).encode() + rb')[:"-]')
_POISON = "poison"
_COUNTS = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "currentReplicas",
    "desiredReplicas",
)


def find_missing(state: ClusterState, expected: ExpectedState) -> str:
    """I6: return the first difference between desired and actual state."""
    for check in (
        *(
            _CHECKS_WITH_SCARCE_QUOTA
            if is_quota_scarce(state, expected)
            else _CHECKS_WITH_ENOUGH_QUOTA
        ),
        *_CHECKS,
    ):
        missing = check(state, expected)
        if missing:
            return missing
    return ""


def i6_machines_are_as_desired(state: ClusterState, expected: ExpectedState) -> str:
    """I6, I16: each cell runs exactly the desired machines. A stopped machine does not run."""
    halted = halted_workloads(state, expected)
    running = {key: workload for key, workload in expected.desired.items() if key not in halted}
    placed = {key: cities_in_use(state, expected, *key) for key in running}
    if moving := next((cities for cities in placed.values() if isinstance(cities, str)), None):
        return moving
    desired = sorted(
        (expected.cell_of(city), workload.image)
        for key, workload in running.items()
        for city in placed[key]
        if city.lower() not in expected.lost
        for _ in range(workload.replicas)
    )
    actual = sorted(_machines(state, expected))
    return "" if actual == desired else f"machines run {actual}, desired are {desired}"


def _machines(state: ClusterState, expected: ExpectedState) -> Iterator[tuple[str, str]]:
    for cell, provider in state.providers.items():
        name = cell.partition("/")[2]
        for machine_id, machine in provider.alive().items():
            is_stopped = machine.suspended_from_s is not None
            if name not in expected.lost and f"/{_POISON}" not in machine_id and not is_stopped:
                yield name, machine.image


def i6_restarted_cities_run_new_instances(state: ClusterState, expected: ExpectedState) -> str:
    """I6: the instances in a city have its last restart, and those of other cities have none.

    Instances that an operator edited are not checked, nor those of halted workloads.
    """
    halted = halted_workloads(state, expected)
    for project in expected.projects:
        namespace = _hub_namespaces(state, project).get(NAMESPACE_NAME, "")
        for cell in (c for c in expected.cells if c not in expected.lost):
            for key, row in state.rows_of(cell_plane(cell), INSTANCE.resource):
                metadata, own = row["metadata"], row["metadata"].get("labels", {})
                owner = project, own.get(labels.WORKLOAD_NAME, "")
                if key.namespace != namespace or owner not in expected.desired or owner in halted:
                    continue
                if any(key.name.startswith(name) for _, name in state.tampered):
                    continue
                wanted = dict(expected.desired[owner].restarts).get(
                    own.get(labels.CITY_CODE, ""), ""
                )
                actual = metadata.get("annotations", {}).get(labels.CITY_RESTARTED_AT, "")
                if actual != wanted:
                    return f"{cell} {key.name} was restarted at {actual!r}, desired is {wanted!r}"
    return ""


def i3_every_machine_has_an_owner(state: ClusterState, expected: ExpectedState) -> str:
    """I3: every machine has a Server with its uid."""
    for cell, machine_id in state.machines():
        namespace, name, uid = machine_id.split("/")
        row = state.rows.get(cell, {}).get(ObjectKey(SERVER.resource, namespace, name))
        if cell.partition("/")[2] not in expected.lost and (
            row is None or row["metadata"]["uid"] != uid
        ):
            return f"machine {machine_id} on {cell} has no server"
    return ""


def i6_workload_counts_are_current(state: ClusterState, expected: ExpectedState) -> str:
    """I6, I7: the status of every workload is correct and of its newest generation."""
    halted = halted_workloads(state, expected)
    for project in expected.projects:
        plane = project_plane(project)
        rows = {key.name: row for key, row in state.rows_of(plane, WORKLOAD.resource)}
        names = sorted(name for owner, name in expected.desired if owner == project)
        if sorted(rows) != names:
            return f"{plane} has the workloads {sorted(rows)}, desired are {names}"
        for name in names:
            desired = expected.desired[(project, name)]
            if (project, name) in halted:
                missing = find_halt_problem(rows[name], desired)
            else:
                missing = _find_status_problem(rows[name], expected, desired)
            if missing:
                return f"{plane} {name}: {missing}"
    return ""


def _find_status_problem(row: JsonObject, expected: ExpectedState, desired: DesiredWorkload) -> str:
    if is_terminating(row):
        return "it is terminating"
    if not expected.is_unaffected(desired):
        return ""
    status = row.get("status", {})
    counts = [status.get(name, 0) for name in _COUNTS]
    replicas = desired.replicas * len(desired.cities)
    if counts != [replicas] * len(_COUNTS):
        return f"it reports {counts}, and {replicas} replicas exist"
    if status.get("observedGeneration") != row["metadata"]["generation"]:
        return "its status is about an older generation"
    return ""


def i6_copies_equal_instances(state: ClusterState, expected: ExpectedState) -> str:
    """I6: hub and projects show exactly the instances of the cells, with the same readiness."""
    on_cells: dict[str, str] = {}
    for cell in expected.cells:
        if cell not in expected.lost:
            on_cells.update(_instances(state, cell_plane(cell)))
    on_hub = _instances(state, HUB, expected.lost)
    if on_hub != on_cells:
        return f"the hub shows {_difference(on_hub, on_cells)}"
    shown: dict[str, str] = {}
    for project in expected.projects:
        hub_namespaces = _hub_namespaces(state, project)
        for key, row in state.rows_of(project_plane(project), INSTANCE.resource):
            if not is_of_any(row, expected.lost):
                shown[f"{hub_namespaces.get(key.namespace)}/{key.name}"] = _state(row)
    return "" if shown == on_cells else f"projects show {_difference(shown, on_cells)}"


def _instances(
    state: ClusterState, plane: str, lost: frozenset[str] = frozenset()
) -> dict[str, str]:
    return {
        f"{key.namespace}/{key.name}": _state(row)
        for key, row in state.rows_of(plane, INSTANCE.resource)
        if not key.name.startswith(_POISON) and not is_of_any(row, lost)
    }


def _hub_namespaces(state: ClusterState, project: str) -> dict[str, str]:
    """Return the namespaces of a project with their names on hub and cells."""
    return {
        key.name: f"ns-{row['metadata']['uid']}"
        for key, row in state.rows_of(project_plane(project), "namespaces")
    }


def _state(row: JsonObject) -> str:
    ready = condition(row, "Ready")
    image = row["spec"]["runtime"]["sandbox"]["containers"][0]["image"]
    ready_value = (ready["status"], ready.get("lastTransitionTime")) if ready else None
    return f"{image} Ready={ready_value}"


def _difference(left: Mapping[str, str], right: Mapping[str, str]) -> str:
    different = [
        f"{name}: {left.get(name)} instead of {right.get(name)}"
        for name in sorted({*left, *right})
        if left.get(name) != right.get(name)
    ]
    return "; ".join(different[:4])


def i22_unready_objects_have_a_reason(state: ClusterState, expected: ExpectedState) -> str:
    """I22: every object that is not ready has a condition with reason and message."""
    for project in expected.projects:
        plane = project_plane(project)
        for resource in (WORKLOAD.resource, DEPLOYMENT.resource):
            for key, row in state.rows_of(plane, resource):
                status = row.get("status", {})
                if status.get("readyReplicas", 0) >= status.get("desiredReplicas", 1):
                    continue
                found = condition(row, "Available")
                if found is None or not found.get("reason") or not found.get("message"):
                    return f"{plane} {resource} {key.name} is not ready and has no reason"
    return ""


def i22_the_worst_reason_is_carried_up(state: ClusterState, expected: ExpectedState) -> str:
    """I22: Available of a workload that does not serve has the reason of the highest rank of its
    deployments, and that of a deployment the reason of the highest rank of its instances."""
    for plane in map(project_plane, expected.projects):
        deployments = [row for _, row in state.rows_of(plane, DEPLOYMENT.resource)]
        instances = [row for _, row in state.rows_of(plane, INSTANCE.resource)]
        problems = [_hidden_reason_of_instances(row, instances) for row in deployments]
        for _, row in state.rows_of(plane, WORKLOAD.resource):
            problems.append(_hidden_reason_of_deployments(row, deployments))
        found = next(filter(None, problems), "")
        if found:
            return f"{plane} {found}"
    return ""


# Reasons of Available that do not come from instances.
_OWN_REASONS = (
    *(*NO_REACHABLE_CELL, *HALT_REASONS, Reason.STOPPING, Reason.REMOVING),
    *(Reason.AWAITING_PROPAGATION, Reason.NETWORK_PROVISIONING),
)


def _hidden_reason_of_instances(row: JsonObject, instances: list[JsonObject]) -> str:
    reason, desired = _reason_if_unavailable(row), row.get("status", {}).get("desiredReplicas", 0)
    name = row["metadata"]["name"]
    causes = [
        ConditionValue(FALSE, ready["reason"], "")
        for instance in instances
        if deployment_of(instance["metadata"]["name"], instance["metadata"].get("labels", {}))
        == name
        and int(instance["metadata"]["name"].rpartition("-")[2]) < desired
        and not is_terminating(instance)
        and (ready := condition(instance, "Ready"))
    ]
    worst = worst_cause(causes)
    if not reason or reason in _OWN_REASONS or worst is None:
        return ""
    carried = as_deployment_reason(worst.reason)
    return "" if reason == carried else f"deployment {name} reports {reason}, not {carried}"


def _hidden_reason_of_deployments(row: JsonObject, deployments: list[JsonObject]) -> str:
    reason, metadata = _reason_if_unavailable(row), row["metadata"]
    reasons = [
        found["reason"]
        for deployment in deployments
        if deployment["spec"]["workloadRef"]["uid"] == metadata["uid"]
        and (found := condition(deployment, "Available"))
    ]
    if not reason or reason in (*HALT_REASONS, Reason.STOPPING, Reason.REMOVING) or not reasons:
        return ""
    worst = max(reasons, key=rank_of)
    if rank_of(reason) == rank_of(worst) and reason in reasons:
        return ""
    return f"workload {metadata['name']} reports {reason}, not {worst}"


def _reason_if_unavailable(row: JsonObject) -> str:
    found = condition(row, "Available")
    if found is None or found["status"] != FALSE or is_terminating(row):
        return ""
    return str(found["reason"])


def i6_hub_shows_which_cells_are_reachable(state: ClusterState, expected: ExpectedState) -> str:
    """I6, I7: the hub shows which cells are reachable, and its copies are applied there."""
    for key, row in state.rows_of(HUB, CLUSTER.resource):
        if is_true(row, "Ready") == (key.name in expected.lost):
            return f"the hub shows a wrong Ready condition of {key.name}"
    for key, row in state.rows_of(HUB, WORK.resource):
        cell = key.namespace.removeprefix(execution_namespace(""))
        if cell in expected.lost or key.name == _POISON:
            continue
        if not is_true(row, "Applied") or _copy_of(state, cell_plane(cell), row) is None:
            return f"work {key.name} is not applied on {cell}"
    return ""


def _copy_of(state: ClusterState, cell: str, work: JsonObject) -> JsonObject | None:
    manifest = work["spec"]["workload"]["manifests"][0]
    metadata = manifest["metadata"]
    kind = kind_of(manifest["apiVersion"], manifest["kind"])
    if kind is None:
        return None
    key = ObjectKey(kind.resource, metadata.get("namespace", ""), metadata["name"])
    return state.rows.get(cell, {}).get(key)


def i5_no_hub_namespace_outlives_its_source(state: ClusterState, expected: ExpectedState) -> str:
    """I5: hub and cells have a namespace, and the hub a policy for it, only while the source
    namespace in the project exists or a lost cell may contain part of it. Cells are not checked if
    the hub was emptied: it has no record of what they contain."""
    sources = {
        hub_namespace
        for project in expected.projects
        for hub_namespace in _hub_namespaces(state, project).values()
    }
    sources |= set(_hub_namespaces_of_lost_cells(state, expected.lost))
    cells = (
        [] if HUB in state.emptied_planes else [c for c in expected.cells if c not in expected.lost]
    )
    for plane in (HUB, *map(cell_plane, cells)):
        for resource in (NAMESPACE.resource, CLUSTER_POLICY.resource):
            for key, _ in state.rows_of(plane, resource):
                if key.name.startswith("ns-") and key.name not in sources:
                    return f"{plane} still has {resource} {key.name}; its source is gone"
    return ""


def _hub_namespaces_of_lost_cells(state: ClusterState, lost: frozenset[str]) -> Iterator[str]:
    """Yield the namespaces of the Works of lost cells."""
    lost_namespaces = {execution_namespace(cell) for cell in lost}
    for key, row in state.rows_of(HUB, WORK.resource):
        if key.namespace in lost_namespaces:
            metadata = row["spec"]["workload"]["manifests"][0]["metadata"]
            yield metadata.get("namespace") or metadata["name"]


def i5_no_prefix_outlives_its_network(state: ClusterState, expected: ExpectedState) -> str:
    """I5: every allocated prefix has a holder that exists, or that may exist on a lost cell."""
    if expected.lost or state.emptied_planes:
        return ""
    held = {row["metadata"]["uid"] for rows in state.rows.values() for row in rows.values()}
    for key, row in state.rows_of(PLATFORM, IP_ALLOCATION.resource):
        if row["spec"]["holderUid"] not in held:
            return f"the holder of {key.name} does not exist"
    return ""


SettledCheck = Callable[[ClusterState, ExpectedState], str]

_CHECKS_WITH_ENOUGH_QUOTA: tuple[SettledCheck, ...] = (
    i6_machines_are_as_desired,
    i6_workload_counts_are_current,
    i6_restarted_cities_run_new_instances,
)
_CHECKS_WITH_SCARCE_QUOTA: tuple[SettledCheck, ...] = (
    i2_grants_are_used_up,
    i22_waiting_instances_report_quota,
    i6_workloads_count_what_runs,
)
_CHECKS: tuple[SettledCheck, ...] = (
    i2_buckets_add_up,
    i2_granted_instances_have_claims,
    i2_no_claim_outlives_its_slot,
    i3_every_machine_has_an_owner,
    i6_copies_equal_instances,
    i13_newest_revision_is_current,
    i38_undo_restores_a_recorded_template,
    i6_unused_subnets_are_deleted,
    i22_unready_objects_have_a_reason,
    i22_the_worst_reason_is_carried_up,
    i6_hub_shows_which_cells_are_reachable,
    i7_nothing_outlives_its_cell,
    i5_no_hub_namespace_outlives_its_source,
    i5_no_prefix_outlives_its_network,
    i5_deleted_projects_leave_nothing,
    i16_nothing_runs_without_access,
    i6_instances_carry_the_halt,
    i34_machines_have_distinct_addresses,
    i16_shares_of_lost_cities_have_moved,
    i6_orphan_copies_are_quarantined,
    i6_hub_namespaces_name_their_project,
)


def find_leftovers(state: ClusterState, expected: ExpectedState) -> str:
    """I5: deleted workloads leave no object on any plane, and no machine."""
    left = [
        f"{cell} {machine_id}"
        for cell, machine_id in state.machines()
        if cell.partition("/")[2] not in expected.lost and f"/{_POISON}" not in machine_id
    ]
    lost_namespaces = {execution_namespace(cell) for cell in expected.lost}
    for plane, rows in state.rows.items():
        if plane.partition("/")[2] in expected.lost and plane.startswith("cell/"):
            continue
        for key, row in rows.items():
            different = _POISON in key.name or key.resource.startswith("events")
            different = different or _is_claim_of_lost_cell(row, expected.lost)
            if (
                not different
                and key.namespace not in lost_namespaces
                and _OF_A_WORKLOAD.search(encode(row))
            ):
                left.append(f"{plane} {key.resource} {key.namespace}/{key.name}")
    return ", ".join(sorted(left)[:8])


def _is_claim_of_lost_cell(row: JsonObject, lost: frozenset[str]) -> bool:
    """Return True for a claim of a lost cell: the instance may still run, so it keeps its quota."""
    cell = row["metadata"].get("labels", {}).get(labels.SOURCE_CLUSTER, "")
    return row.get("kind") == CLAIM.kind and cell in lost


def summarize_state(state: ClusterState, expected: ExpectedState) -> tuple[str, ...]:
    """I21: return the final state without values that differ between runs: ids, versions, times."""
    return tuple(sorted(_summary_lines(state, (*map(project_plane, expected.projects), HUB))))


def _summary_lines(state: ClusterState, planes: Iterable[str]) -> Iterator[str]:
    for plane in planes:
        for key, row in state.rows.get(plane, {}).items():
            if key.resource not in _SUMMARIZED or key.name.startswith(_POISON):
                continue
            status = row.get("status", {})
            conditions = sorted(
                f"{c['type']}={c['status']}/{c['reason']}" for c in status.get("conditions", ())
            )
            counts = [status.get(name, 0) for name in _COUNTS]
            where = key.namespace if key.namespace == NAMESPACE_NAME else "hub namespace"
            name = _stable_name(key, row)
            yield f"{plane} {key.resource} {where}/{name} {counts} {' '.join(conditions)}"


def _stable_name(key: ObjectKey, row: JsonObject) -> str:
    """Return a name that does not depend on which of two workloads was first to get a name."""
    owner = row["metadata"].get("labels", {})
    place = [owner.get(label, "") for label in _PLACE_LABELS]
    if not all(place):
        return key.name
    ordinal = key.name.rpartition("-")[2] if key.resource == INSTANCE.resource else ""
    return "/".join((*place, ordinal))


_PLACE_LABELS = (labels.WORKLOAD_NAME, labels.PLACEMENT_NAME, labels.CITY_CODE)
_SUMMARIZED = (WORKLOAD.resource, DEPLOYMENT.resource, INSTANCE.resource)
