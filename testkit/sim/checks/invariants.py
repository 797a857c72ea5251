"""Checks at every commit. The numbers are those of the list in docs/internals/simulator.md.

A check is a function of the cluster state and one changed row. It returns a violation, or the empty
string. To add one: a function with its number here, and its line in ``CHECKS``. Checks of a settled
world are in ``convergence.py``.

Two checks are not about rows. I20: no controller reconciles a key twice concurrently. I11: a
manager that does not hold the lease sends no write. I11 is checked when a write is sent, because a
request in transit must be harmless by itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from datum_compute.api import labels
from datum_compute.api.http import Request
from datum_compute.api.kinds import (
    BINDING,
    CLAIM,
    CLUSTER,
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    IP_ALLOCATION,
    LEASE,
    SERVER,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import HUB, PlaneName, cell_plane, execution_namespace
from datum_compute.client.watch import IDLE_TIMEOUT_S
from datum_compute.controllers import registry
from datum_compute.planes.planes import upstream_key
from datum_compute.store.journal import Entry, ObjectKey, PlaneDeleted
from testkit.sim.actors.users import canary
from testkit.sim.checks.city_order import CityOrderWatch
from testkit.sim.checks.data import (
    i18_secret_bytes_stay_in_secrets,
    i26_runs_with_the_data_on_record,
)
from testkit.sim.checks.fallback import i16_served_until_replaced
from testkit.sim.checks.prefixes import i2_prefix_outlives_its_machines
from testkit.sim.checks.projects import (
    i8_first_entitled_stays,
    i36_one_workload_for_each_object,
)
from testkit.sim.checks.promises import (
    RemovedNamespaces,
    TerminatingInstances,
    has_template_of_city,
    i1_one_instance_for_each_slot,
    i7_complete_rollouts_have_reached_cells,
    i12_within_max_unavailable,
    i14_desired_deployments_stay,
    i15_copy_stays_with_its_instance,
    i15_instance_leaves_after_its_machine,
    i15_plane_goes_drained,
    is_surge_slot,
    surge_ordinals,
)
from testkit.sim.checks.quota import (
    i2_claim_outlives_its_machine,
    i2_within_the_limit,
    i4_gate_goes_with_its_grant,
)
from testkit.sim.checks.removal import i37_source_is_gone
from testkit.sim.checks.serving import ServingWatch
from testkit.sim.checks.state import ClusterState, RowChange, Trace, is_terminating, is_true
from testkit.sim.checks.suspension import i32_suspension_changes_no_identity
from testkit.sim.host import MANAGER_TOKEN
from testkit.sim.loop import HOST
from testkit.sim.processes import LEADER_LEASES, LEASE_NAMESPACE
from testkit.sim.scenario.scenario import MANAGERS

WINDOW_S = 10.0
# Far above what a conflict storm and its retries write to one object.
WRITES_MAX = 250
# The end of the slot of a machine whose Server an operator created (CreatePoison).
_CREATED_BY_OPERATOR = "/poison"


class RecentWrites:
    """The times of the latest writes to each object (I20: no object is written endlessly)."""

    def __init__(self) -> None:
        self._written_s: dict[tuple[str, ObjectKey], deque[float]] = {}

    def violation(self, change: RowChange) -> str:
        written_s = self._written_s.setdefault((change.plane, change.key), deque(maxlen=WRITES_MAX))
        written_s.append(change.at_s)
        if len(written_s) < WRITES_MAX or change.at_s - written_s[0] > WINDOW_S:
            return ""
        elapsed_s = change.at_s - written_s[0]
        return f"I20: {_where(change)} was written {WRITES_MAX} times in {elapsed_s:.1f} s"


# Maximum age of the state of a machine that a cell reports. A cell observes every half minute, but
# may write to its Server only when a half-open watch has been replaced.
OBSERVED_S = IDLE_TIMEOUT_S + 5.0
# Maximum time for which readers of the hub may see a reachable cell as not Ready.
READY_KNOWN_S = IDLE_TIMEOUT_S + 5.0

Check = Callable[[ClusterState, RowChange], str]


class InvariantBroken(AssertionError):
    """A rule of the platform does not hold; the message names the rule, the place and the
    values."""


class Observer:
    """Receives every commit of a world, records the trace, and runs the checks."""

    def __init__(self, state: ClusterState, projects: Sequence[str]) -> None:
        self.state = state
        self.trace = Trace()
        self.broken: InvariantBroken | None = None
        self.observed: dict[tuple[str, ObjectKey, str], int] = {}
        self._writes = RecentWrites()
        self._namespaces = RemovedNamespaces()
        self._leaving = TerminatingInstances()
        self._serving = ServingWatch()
        self._city_order = CityOrderWatch()
        self.on_broken: Callable[[InvariantBroken], None] | None = None
        self._canaries = {f"project/{name}": canary(name).encode() for name in projects}

    def on_commit(self, _number: int, batch: Sequence[Entry]) -> None:
        for entry in batch:
            if isinstance(entry, PlaneDeleted):
                self.log(f"{entry.plane} is removed")
                if violation := i15_plane_goes_drained(self.state, entry.plane):
                    self.report_violation(violation)
        # Machines do not change during a commit.
        if violation := i1_one_machine_for_each_slot(self.state, self.state.now()):
            self.report_violation(violation)
        for change in self.state.apply(batch):
            self.trace.add_change(change)
            for violation in self._find_violations(change):
                self.report_violation(violation)

    def report_violation(self, violation: str) -> None:
        self.log(f"BROKEN {violation}")
        if self.broken is None:
            self.broken = InvariantBroken(violation)
            if self.on_broken is not None:
                self.on_broken(self.broken)

    def log(self, text: str) -> None:
        self.trace.add_message(self.state.now(), text)

    def _find_violations(self, change: RowChange) -> Iterator[str]:
        state = self.state
        yield from filter(
            None,
            (
                i9_versions_rise(state, change),
                i8_observed_generation(state, change, self.observed),
                i17_projects_are_isolated(change, self._canaries),
                i18_secrets_stay_secret(change),
                i18_secret_bytes_stay_in_secrets(change),
                self._writes.violation(change),
                self._namespaces.violation(state, change),
                self._leaving.violation(state, change),
                self._serving.violation(state, change),
                self._city_order.violation(state, change),
                i37_source_is_gone(state, change),
            ),
        )
        for check in CHECKS.get(change.key.resource, ()):
            violation = check(state, change)
            if violation:
                yield violation


# --- at every commit


def i9_versions_rise(state: ClusterState, change: RowChange) -> str:
    """I9: versions of a plane increase, also across crashes."""
    last = state.versions.get(change.plane, 0)
    state.versions[change.plane] = change.version
    return (
        f"I9: {change.plane} went from {last} to {change.version}" if change.version <= last else ""
    )


def i1_one_machine_for_each_slot(state: ClusterState, now_s: float) -> str:
    """I1: at most one live machine for each deployment and ordinal, on all cells together.

    A Server that an operator created belongs to no deployment. Each cell may have one of its name.
    """
    alive: dict[str, tuple[PlaneName, str]] = {}
    for cell, provider in state.providers.items():
        # This runs at every commit, so the text is formatted only for a violation.
        for machine_id in provider.alive():
            slot = machine_id.rpartition("/")[0]
            state.last_alive_s[f"{cell} {slot}"] = now_s
            if machine_id in provider.lied_about:
                continue
            if slot.endswith(_CREATED_BY_OPERATOR):
                slot = f"{cell} {slot}"
            if slot in alive:
                one = " ".join(alive[slot])
                return f"I1: two machines for {slot}: {one} and {cell} {machine_id}"
            alive[slot] = (cell, machine_id)
    return ""


def i8_observed_generation(
    state: ClusterState, change: RowChange, observed_by_row: dict[tuple[str, ObjectKey, str], int]
) -> str:
    """I8: an observed generation exists, and never decreases."""
    row = change.after
    if row is None or (change.plane, change.key.name) in state.tampered:
        return ""
    if change.plane == HUB and (state.emptied_planes or state.tampered):
        return ""  # the hub mirrors the generation of a copy, which may have been recreated
    if change.plane in state.restored:
        return ""  # it was restored from its backup
    if change.plane == HUB and change.key in state.rebound:
        return ""  # another cell reports it, or no cell does
    observed = (row.get("status") or {}).get("observedGeneration", 0)
    generation = row["metadata"].get("generation", 0)
    seen = (change.plane, change.key, row["metadata"]["uid"])
    if observed > max(generation, state.deleted_copies.get(seen, 0)):
        return f"I8: {_where(change)} observed {observed} of {generation}"
    last = observed_by_row.get(seen, 0)
    observed_by_row[seen] = observed
    if observed >= last or state.deleted_copies.pop(seen, None) is not None:
        return ""  # the copy that follows a deleted one starts at generation 1
    return f"I8: {_where(change)} observed {observed} after {last}"


def i17_projects_are_isolated(change: RowChange, canaries: dict[str, bytes]) -> str:
    """I17: no plane of a project contains data of another project."""
    if change.body is not None and change.plane in canaries:
        for project, secret in canaries.items():
            if project != change.plane and secret in change.body:
                return f"I17: {_where(change)} contains data of {project}"
    return ""


def i18_secrets_stay_secret(change: RowChange) -> str:
    """I18: no object contains a token."""
    if change.body is not None and (
        b"token-of-" in change.body or MANAGER_TOKEN.encode() in change.body
    ):
        return f"I18: {_where(change)} contains a token"
    return ""


# --- by kind


def i7_available_is_true(state: ClusterState, change: RowChange) -> str:
    """I7: an instance on a cell is Available only if its machine ran a moment ago."""
    if change.after is None or not change.plane.startswith("cell/"):
        return ""
    if not is_true(change.after, "Available") or (change.plane, change.key.name) in state.tampered:
        return ""
    slot = f"{change.plane} {change.key.namespace}/{change.key.name}"
    last_s = state.last_alive_s.get(slot)
    if last_s is None:
        return f"I7: {_where(change)} is Available and never had a machine"
    age_s = change.at_s - last_s
    if age_s > OBSERVED_S:
        return f"I7: {_where(change)} is Available, its machine is gone for {age_s:.0f} s"
    return ""


def i14_removed_for_a_reason(state: ClusterState, change: RowChange) -> str:
    """I14: an instance with the template of its city is not replaced, and a scale-down removes the
    highest ordinal. Surge instances are removed in any order, and so are outdated instances whose
    ordinals a scale-down left to them."""
    before, after = change.before, change.after
    if not change.plane.startswith("cell/") or before is None or is_terminating(before):
        return ""
    if after is not None and not is_terminating(after):
        return ""
    owner = before["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME, "")
    rows = state.rows[change.plane]
    deployment = rows.get(ObjectKey(DEPLOYMENT.resource, change.key.namespace, owner))
    if deployment is None or is_terminating(deployment):
        return ""
    if state.is_namespace_terminating(change.plane, change.key.namespace):
        return ""
    if HUB in state.restored:
        return ""  # its backup has an older template, until the project's spec arrives again
    if any(name.startswith((change.key.namespace, owner)) for _, name in state.tampered):
        return ""  # an operator deleted it, here or on another plane
    wanted = deployment["spec"].get("scaleSettings", {}).get("minReplicas", 1)
    number = int(before["metadata"]["labels"].get(labels.INSTANCE_INDEX, "-1"))
    current = has_template_of_city(state, deployment, before)
    if is_surge_slot(deployment, number) or (not current and number in surge_ordinals(deployment)):
        return ""
    if number >= wanted:
        return _find_higher_ordinal(state, change, owner, number)
    if current and is_true(before, "Ready"):
        return f"I14: {_where(change)} is removed although it is ready and current"
    return ""


def _find_higher_ordinal(state: ClusterState, change: RowChange, owner: str, number: int) -> str:
    for key, row in state.rows_of(change.plane, INSTANCE.resource):
        own_labels = row["metadata"].get("labels", {})
        if (
            key.namespace == change.key.namespace
            and own_labels.get(labels.DEPLOYMENT_NAME) == owner
        ):
            index = own_labels.get(labels.INSTANCE_INDEX, "")
            if not is_terminating(row) and index.isdecimal() and int(index) > number:
                return f"I14: {_where(change)} is removed before {key.name}"
    return ""


def i15_server_leaves_after_its_machine(state: ClusterState, change: RowChange) -> str:
    """I15: a Server is deleted only after its machine."""
    if change.after is not None or change.before is None:
        return ""
    uid = change.before["metadata"]["uid"]
    provider = state.providers.get(PlaneName(change.plane))
    machine_id = f"{change.key.namespace}/{change.key.name}/{uid}"
    if provider is None or machine_id in provider.lied_about:
        return ""
    return (
        f"I15: {_where(change)} is deleted, its machine runs"
        if machine_id in provider.alive()
        else ""
    )


def i15_work_leaves_after_its_copy(state: ClusterState, change: RowChange) -> str:
    """I15: a terminating Work is deleted only when its cell has no copy."""
    if change.after is not None or change.before is None:
        return ""
    cell = cell_plane(change.key.namespace.removeprefix(execution_namespace("")))
    if cell in state.abandoned_cells or cell in state.restored:
        return ""  # no cell can confirm it, or a confirmed deletion was undone
    for key, row in state.rows.get(cell, {}).items():
        annotations = row["metadata"].get("annotations", {})
        named = (annotations.get(labels.WORK_NAMESPACE), annotations.get(labels.WORK_NAME))
        if named == (change.key.namespace, change.key.name):
            return f"I15: {_where(change)} is deleted, {key.resource} {key.name} is on {cell}"
    return ""


def i15_project_deployment_goes_last(state: ClusterState, change: RowChange) -> str:
    """I15: a project's deployment is deleted only when every reachable cell has deleted its copy.
    For an unreachable cell the hub keeps a terminating Work. If a restore lost the Work, the hub
    has no record of the copy until the Work is written again; I6 checks that the cell deletes the
    orphan."""
    if change.after is not None or change.before is None or not change.plane.startswith("project/"):
        return ""
    if (change.plane, change.key.name) in state.tampered:
        return ""
    hub_namespace = (
        change.before["metadata"].get("annotations", {}).get(labels.FEDERATION_NAMESPACE, "")
    )
    if not hub_namespace:
        return _find_unrecorded_hub_copy(state, change)
    for cell in state.providers:
        if cell in state.abandoned_cells:
            continue
        copy = ObjectKey(DEPLOYMENT.resource, hub_namespace, change.key.name)
        found = state.rows.get(cell, {}).get(copy)
        if found is None:
            continue
        work_key = _work_key_of(found)
        work = state.rows[HUB].get(work_key)
        is_lost = work is None and (HUB, work_key) in state.lost_by_restore
        if is_lost and copy not in state.rows[HUB]:
            continue
        if work is None or not is_terminating(work):
            return (
                f"I15: {_where(change)} is deleted; {cell} has a copy, and no Work is terminating"
            )
        if is_true(_cluster(state, cell) or {}, "Ready") and not _became_ready_recently(
            state, cell
        ):
            return f"I15: {_where(change)} is deleted; {cell} is reachable and has a copy"
    return ""


def _find_unrecorded_hub_copy(state: ClusterState, change: RowChange) -> str:
    """Return a violation if the hub copy is written before its hub namespace is recorded. No
    controller could then find the copy to delete it."""
    for key, row in state.rows_of(HUB, DEPLOYMENT.resource):
        found = upstream_key(row["metadata"].get("labels", {}), key.name)
        if found is not None and (found.plane, found.ref.name) == (change.plane, change.key.name):
            return f"I15: {_where(change)} is deleted; the hub has a copy that was never recorded"
    return ""


def _work_key_of(copy: JsonObject) -> ObjectKey:
    annotations = copy["metadata"].get("annotations", {})
    namespace, name = (
        annotations.get(labels.WORK_NAMESPACE, ""),
        annotations.get(labels.WORK_NAME, ""),
    )
    return ObjectKey(WORK.resource, namespace, name)


def _cluster(state: ClusterState, cell: PlaneName) -> JsonObject | None:
    key = ObjectKey(CLUSTER.resource, "", cell.partition("/")[2])
    return state.rows[HUB].get(key)


def _became_ready_recently(state: ClusterState, cell: PlaneName) -> bool:
    """Return True if the cell became Ready a moment ago: readers of the hub may not have observed
    it."""
    return state.now() - state.ready_since_s.get(cell, 0.0) < READY_KNOWN_S


def i23_available_needs_a_ready_replica(_state: ClusterState, change: RowChange) -> str:
    """I23: Available requires at least one ready replica or a surge instance."""
    if change.after is None or not is_true(change.after, "Available"):
        return ""
    status = change.after["status"]
    if status.get("readyReplicas", 0) + status.get("surgeReplicas", 0) < 1:
        return f"I23: {_where(change)} is Available with no ready replica"
    return ""


def record_rebound(state: ClusterState, change: RowChange) -> str:
    """Record which deployments left a cell. This is not a check."""
    before, after = change.before, change.after
    if before is not None and before["spec"]["resource"]["kind"] == DEPLOYMENT.kind:
        was, now = (row["spec"].get("clusters") if row else None for row in (before, after))
        if was and was != now:
            name = before["spec"]["resource"]["name"]
            state.rebound[ObjectKey(DEPLOYMENT.resource, change.key.namespace, name)] = None
    return ""


def record_deleted_copy(state: ClusterState, change: RowChange) -> str:
    """Record that a copy is deleted on its cell while its original is on the hub, for example with
    its namespace. The deletion increments the generation, and the hub mirrors it. This is not a
    check."""
    row, original = change.after, state.rows.get(HUB, {}).get(change.key)
    if not change.plane.startswith("cell/") or original is None:
        return ""
    if row is not None and is_terminating(row):
        seen = (HUB, change.key, original["metadata"]["uid"])
        state.deleted_copies[seen] = row["metadata"]["generation"]
    return ""


def record_former_city(state: ClusterState, change: RowChange) -> str:
    """Record which city a cell served before an operator changed it. This is not a check."""
    if change.before is not None and change.after is not None:
        rows = (change.before, change.after)
        was, now = (row["metadata"].get("labels", {}).get(labels.TOPOLOGY_CITY) for row in rows)
        if was and was != now:
            state.former_city[cell_plane(change.key.name)] = (was, change.at_s)
    return ""


def record_ready(state: ClusterState, change: RowChange) -> str:
    """Record since when a cell is Ready on the hub, and which cells left by force. This is not a
    check."""
    cell = cell_plane(change.key.name)
    annotations = (change.after or {"metadata": {}})["metadata"].get("annotations", {})
    if labels.FORCED_LEAVE in annotations:
        state.abandoned_cells[cell] = None
    was = change.before is not None and is_true(change.before, "Ready")
    if change.after is not None and is_true(change.after, "Ready") and not was:
        state.ready_since_s[cell] = change.at_s
    return ""


def i8_copy_is_of_one_instance(state: ClusterState, change: RowChange) -> str:
    """I8: a copy in a project is never given to another instance, so it is as old as its instance.

    Copies that were edited by hand are ignored.
    """
    before, after = change.before, change.after
    if before is None or after is None or not change.plane.startswith("project/"):
        return ""
    if before["metadata"]["uid"] != after["metadata"]["uid"] or state.tampered:
        return ""
    earlier, later = _instance_uid_of_copy(before), _instance_uid_of_copy(after)
    if earlier and later and earlier != later:
        return f"I8: {_where(change)} was the copy of {earlier} and is now that of {later}"
    return ""


def _instance_uid_of_copy(row: JsonObject) -> str:
    source = row["metadata"].get("annotations", {}).get(labels.COPY_OF, "")
    return str(source.rpartition("/")[2])


CHECKS: dict[str, tuple[Check, ...]] = {
    INSTANCE.resource: (
        i8_copy_is_of_one_instance,
        i1_one_instance_for_each_slot,
        i7_available_is_true,
        i14_removed_for_a_reason,
        i12_within_max_unavailable,
        i15_instance_leaves_after_its_machine,
        i15_copy_stays_with_its_instance,
        i4_gate_goes_with_its_grant,
        i32_suspension_changes_no_identity,
        i36_one_workload_for_each_object,
    ),
    CLAIM.resource: (
        i2_within_the_limit,
        i2_claim_outlives_its_machine,
        i36_one_workload_for_each_object,
    ),
    SERVER.resource: (
        i15_server_leaves_after_its_machine,
        i26_runs_with_the_data_on_record,
        i32_suspension_changes_no_identity,
    ),
    WORK.resource: (i15_work_leaves_after_its_copy,),
    DEPLOYMENT.resource: (
        i15_project_deployment_goes_last,
        i23_available_needs_a_ready_replica,
        i14_desired_deployments_stay,
        i16_served_until_replaced,
        i36_one_workload_for_each_object,
        record_deleted_copy,
    ),
    WORKLOAD.resource: (
        i23_available_needs_a_ready_replica,
        i7_complete_rollouts_have_reached_cells,
    ),
    IP_ALLOCATION.resource: (i2_prefix_outlives_its_machines,),
    ENTITLEMENT.resource: (i8_first_entitled_stays,),
    CLUSTER.resource: (record_ready, record_former_city),
    BINDING.resource: (record_rebound,),
}


def _where(change: RowChange) -> str:
    return f"{change.plane} {change.key.resource} {change.key.namespace}/{change.key.name}"


Reconcile = Callable[[Any, Any], Awaitable[Any]]


@contextmanager
def exclusion_checked(report_violation: Callable[[str], None]) -> Iterator[None]:
    """Report a key that a controller reconciles twice concurrently, while the context is open."""
    groups = (
        registry.MANAGEMENT,
        registry.HUB,
        registry.CELL,
        registry.CLUSTER,
        registry.PROJECT_MEMBERSHIP,
        registry.HUB_NAMESPACE_MEMBERSHIP,
        registry.CELL_NAMESPACE_MEMBERSHIP,
        registry.CELL_MEMBERS,
    )
    found = [(controller, controller.reconcile) for group in groups for controller in group]
    for controller, reconcile in found:
        # Replaced in place, because hosts hold references to the controllers.
        watched = checked_reconcile(controller.name, reconcile, report_violation)
        object.__setattr__(controller, "reconcile", watched)
    try:
        yield
    finally:
        for controller, reconcile in found:
            object.__setattr__(controller, "reconcile", reconcile)


def checked_reconcile(
    name: str, reconcile: Reconcile, report_violation: Callable[[str], None]
) -> Reconcile:
    in_flight: dict[tuple[str, Any], None] = {}

    async def exclusively(context: Any, key: Any) -> Any:
        place = (HOST.get(), key)  # a crashed process does not complete its reconciles
        if place in in_flight:
            report_violation(f"I20: {name} reconciles {key} twice at once on {HOST.get()}")
        in_flight[place] = None
        try:
            return await reconcile(context, key)
        finally:
            in_flight.pop(place, None)

    return exclusively


def find_leadership_violation(state: ClusterState, source: str, request: Request) -> str:
    """I11: return a violation if a manager sends a write without holding every lease."""
    if source not in MANAGERS or request.method in ("GET", "HEAD"):
        return ""
    if f"/{LEASE.plural}" in request.path:
        return ""
    for name in LEADER_LEASES:
        row = state.rows[HUB].get(ObjectKey(LEASE.storage, LEASE_NAMESPACE, name))
        holder = row["spec"].get("holderIdentity", "") if row is not None else ""
        if holder != HOST.get():
            return f"I11: {HOST.get()} writes {request.path}, the holder of {name} is {holder}"
    return ""
