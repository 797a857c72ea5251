"""What must hold at every single commit. I-numbers are those of the invariant list.

A check is a function of the truth and one changed row; it answers a complaint, or nothing. To add
one: a function here with its number, and its line in ``CHECKS``. What must hold only after the
calm is in ``convergence.py``.

I20: nobody writes one object again and again. Noticed at once, not only in the calm.

Watches the one rule of the queue that leaves no trace in any row: no key is worked on twice at
once by one controller of one process.

The check of leader election (F16): a manager that does not hold the lease sends no write.

It is checked when a write is sent, because a request that is already under way must be harmless by
itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.exchange import Request
from datum_compute.api.identity import execution_namespace
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
from datum_compute.api.plane import HUB, PlaneName, cell_plane
from datum_compute.controllers import registry
from datum_compute.planes.planes import upstream_key
from datum_compute.store.journal import Entry, ObjectKey, PlaneDeleted
from testkit.sim.actors.users import canary
from testkit.sim.checks.data import (
    i18_secret_bytes_stay_in_secrets,
    i26_runs_with_the_data_on_record,
)
from testkit.sim.checks.fallback import i16_served_until_replaced
from testkit.sim.checks.prefixes import i2_prefix_outlives_its_machines
from testkit.sim.checks.projects import i8_first_entitled_stays
from testkit.sim.checks.promises import (
    GoneNamespaces,
    LeavingInstances,
    i1_one_instance_for_each_slot,
    i7_done_is_done,
    i12_one_at_a_time,
    i14_nothing_wanted_is_dropped,
    i15_copy_stays_with_its_instance,
    i15_instance_leaves_after_its_machine,
    i15_plane_goes_drained,
)
from testkit.sim.checks.quota import (
    i2_claim_outlives_its_machine,
    i2_within_the_limit,
    i4_gate_goes_with_its_grant,
)
from testkit.sim.checks.serving import ServingWatch
from testkit.sim.checks.state import Step, Trace, Truth, is_terminating, is_true
from testkit.sim.host import MANAGER_TOKEN
from testkit.sim.loop import HOST
from testkit.sim.processes import LEADER_LEASES, LEASE_NAMESPACE
from testkit.sim.scenario.scenario import MANAGERS

WINDOW_S = 10.0
# Far above what a conflict storm and those who answer it write to one object.
WRITES_MAX = 250


class RecentWrites:
    """When each object was written last, as often as it matters."""

    def __init__(self) -> None:
        self._written_s: dict[tuple[str, ObjectKey], deque[float]] = {}

    def complaint(self, step: Step) -> str:
        written_s = self._written_s.setdefault((step.plane, step.key), deque(maxlen=WRITES_MAX))
        written_s.append(step.at_s)
        if len(written_s) < WRITES_MAX or step.at_s - written_s[0] > WINDOW_S:
            return ""
        return (
            f"I20: {step.plane} {step.key.resource} {step.key.namespace}/{step.key.name} was "
            f"written {WRITES_MAX} times in {step.at_s - written_s[0]:.1f} s"
        )


# How old what a cell says about its machines may be: it looks at least every half minute.
OBSERVED_S = 60.0
# How long readers of the hub may believe that a cell does not answer when it does again.
READY_KNOWN_S = 60.0

Check = Callable[[Truth, Step], str]


class InvariantBroken(AssertionError):
    """A rule of the platform did not hold; the message says which, where and when."""


class Observer:
    """Sees every commit of a world, keeps the trace, and checks what must always hold."""

    def __init__(self, truth: Truth, projects: Sequence[str]) -> None:
        self.truth = truth
        self.trace = Trace()
        self.broken: InvariantBroken | None = None
        self.observed: dict[tuple[str, ObjectKey, str], int] = {}
        self._writes = RecentWrites()
        self._namespaces = GoneNamespaces()
        self._leaving = LeavingInstances()
        self._serving = ServingWatch()
        self.on_broken: Callable[[InvariantBroken], None] | None = None
        self._canaries = {f"project/{name}": canary(name).encode() for name in projects}

    def on_commit(self, _number: int, batch: Sequence[Entry]) -> None:
        for entry in batch:
            if isinstance(entry, PlaneDeleted):
                self.say(f"{entry.plane} is removed")
                if complaint := i15_plane_goes_drained(self.truth, entry.plane):
                    self.complain(complaint)
        # Machines do not change while a commit is looked at.
        if complaint := i1_one_machine_for_each_slot(self.truth, self.truth.now()):
            self.complain(complaint)
        for step in self.truth.apply(batch):
            self.trace.committed(step)
            for complaint in self._complaints(step):
                self.complain(complaint)

    def complain(self, complaint: str) -> None:
        self.say(f"BROKEN {complaint}")
        if self.broken is None:
            self.broken = InvariantBroken(complaint)
            if self.on_broken is not None:
                self.on_broken(self.broken)

    def say(self, text: str) -> None:
        self.trace.said(self.truth.now(), text)

    def _complaints(self, step: Step) -> Iterator[str]:
        truth = self.truth
        yield from filter(
            None,
            (
                i9_versions_rise(truth, step),
                i8_observed_generation(truth, step, self.observed),
                i17_tenants_are_apart(step, self._canaries),
                i18_secrets_stay_secret(step),
                i18_secret_bytes_stay_in_secrets(step),
                self._writes.complaint(step),
                self._namespaces.complaint(truth, step),
                self._leaving.complaint(truth, step),
                self._serving.complaint(truth, step),
            ),
        )
        for check in CHECKS.get(step.key.resource, ()):
            complaint = check(truth, step)
            if complaint:
                yield complaint


# --- at every commit


def i9_versions_rise(truth: Truth, step: Step) -> str:
    """I9: versions of a plane rise, also across crashes."""
    last = truth.versions.get(step.plane, 0)
    truth.versions[step.plane] = step.version
    return f"I9: {step.plane} went from {last} to {step.version}" if step.version <= last else ""


def i1_one_machine_for_each_slot(truth: Truth, now_s: float) -> str:
    """I1: never two live machines with one deployment and ordinal, on whatever cells."""
    alive: dict[str, tuple[PlaneName, str]] = {}
    for cell, provider in truth.providers.items():
        for machine_id in provider.alive():  # at every commit: no text is made that need not be
            slot = machine_id.rpartition("/")[0]
            truth.last_alive_s[f"{cell} {slot}"] = now_s
            if machine_id in provider.lied_about:
                continue
            if slot in alive:
                one = " ".join(alive[slot])
                return f"I1: two machines for {slot}: {one} and {cell} {machine_id}"
            alive[slot] = (cell, machine_id)
    return ""


def i8_observed_generation(
    truth: Truth, step: Step, observed_by_row: dict[tuple[str, ObjectKey, str], int]
) -> str:
    """I8: a status is never about a generation that does not exist, and never goes back."""
    row = step.after
    if row is None or (step.plane, step.key.name) in truth.tampered:
        return ""
    if step.plane == HUB and (truth.emptied or truth.tampered):
        return ""  # the hub mirrors the generation of a copy, which may have begun anew
    if step.plane in truth.restored:
        return ""  # it went back to its backup
    if step.plane == HUB and step.key in truth.rebound:
        return ""  # another cell speaks for it, or none
    observed = (row.get("status") or {}).get("observedGeneration", 0)
    generation = row["metadata"].get("generation", 0)
    seen = (step.plane, step.key, row["metadata"]["uid"])
    if observed > max(generation, truth.deleted_copies.get(seen, 0)):
        return f"I8: {_where(step)} observed {observed} of {generation}"
    last = observed_by_row.get(seen, 0)
    observed_by_row[seen] = observed
    if observed >= last or truth.deleted_copies.pop(seen, None) is not None:
        return ""  # the copy that follows a deleted one starts at generation 1
    return f"I8: {_where(step)} went back from {last} to {observed}"


def i17_tenants_are_apart(step: Step, canaries: dict[str, bytes]) -> str:
    """I17: nothing of one project turns up on the plane of another."""
    if step.body is not None and step.plane in canaries:
        for project, secret in canaries.items():
            if project != step.plane and secret in step.body:
                return f"I17: {_where(step)} holds what belongs to {project}"
    return ""


def i18_secrets_stay_secret(step: Step) -> str:
    """I18: no token is ever written into an object."""
    if step.body is not None and (b"token-of-" in step.body or MANAGER_TOKEN.encode() in step.body):
        return f"I18: {_where(step)} holds a token"
    return ""


# --- by kind


def i7_available_is_true(truth: Truth, step: Step) -> str:
    """I7: a cell calls an instance Available only if its machine ran a moment ago."""
    if step.after is None or not step.plane.startswith("cell/"):
        return ""
    if not is_true(step.after, "Available") or (step.plane, step.key.name) in truth.tampered:
        return ""
    slot = f"{step.plane} {step.key.namespace}/{step.key.name}"
    last_s = truth.last_alive_s.get(slot)
    if last_s is None:
        return f"I7: {_where(step)} is called Available and never had a machine"
    age_s = step.at_s - last_s
    if age_s > OBSERVED_S:
        return f"I7: {_where(step)} is called Available, its machine is gone for {age_s:.0f} s"
    return ""


def i14_removed_for_a_reason(truth: Truth, step: Step) -> str:
    """I14: an instance that is as wanted is not replaced; a surplus goes highest first."""
    before, after = step.before, step.after
    if not step.plane.startswith("cell/") or before is None or is_terminating(before):
        return ""
    if after is not None and not is_terminating(after):
        return ""
    owner = before["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME, "")
    rows = truth.rows[step.plane]
    deployment = rows.get(ObjectKey(DEPLOYMENT.resource, step.key.namespace, owner))
    if deployment is None or is_terminating(deployment):
        return ""
    if truth.is_leaving(step.plane, step.key.namespace):
        return ""
    if HUB in truth.restored:
        return ""  # its backup asked for an older template, until the project was heard again
    if any(name.startswith((step.key.namespace, owner)) for _, name in truth.tampered):
        return ""  # somebody else wanted it gone, here or further up
    wanted = deployment["spec"].get("scaleSettings", {}).get("minReplicas", 1)
    number = int(before["metadata"]["labels"].get(labels.INSTANCE_INDEX, "-1"))
    if number >= wanted:
        return _higher_than(truth, step, owner, number)
    template = deployment["spec"]["template"]["spec"]
    current = all(before["spec"].get(name) == value for name, value in template.items())
    if current and is_true(before, "Ready"):
        return f"I14: {_where(step)} is removed though it is ready and as wanted"
    return ""


def _higher_than(truth: Truth, step: Step, owner: str, number: int) -> str:
    for key, row in truth.of_resource(step.plane, INSTANCE.resource):
        own = row["metadata"].get("labels", {})
        if key.namespace == step.key.namespace and own.get(labels.DEPLOYMENT_NAME) == owner:
            index = own.get(labels.INSTANCE_INDEX, "")
            if not is_terminating(row) and index.isdecimal() and int(index) > number:
                return f"I14: {_where(step)} is removed before {key.name}"
    return ""


def i15_server_leaves_after_its_machine(truth: Truth, step: Step) -> str:
    """I15: a Server is gone only when its machine is."""
    if step.after is not None or step.before is None:
        return ""
    uid = step.before["metadata"]["uid"]
    provider = truth.providers.get(PlaneName(step.plane))
    machine_id = f"{step.key.namespace}/{step.key.name}/{uid}"
    if provider is None or machine_id in provider.lied_about:
        return ""
    return f"I15: {_where(step)} left, its machine lives" if machine_id in provider.alive() else ""


def i15_work_leaves_after_its_copy(truth: Truth, step: Step) -> str:
    """I15: a tombstone goes only when the cell holds no copy any more."""
    if step.after is not None or step.before is None:
        return ""
    cell = cell_plane(step.key.namespace.removeprefix(execution_namespace("")))
    if cell in truth.given_up or cell in truth.restored:
        return ""  # nobody answers for it; or what was confirmed to be gone came back
    for key, row in truth.rows.get(cell, {}).items():
        notes = row["metadata"].get("annotations", {})
        named = (notes.get(labels.WORK_NAMESPACE), notes.get(labels.WORK_NAME))
        if named == (step.key.namespace, step.key.name):
            return f"I15: {_where(step)} left, {key.resource} {key.name} is on {cell}"
    return ""


def i15_project_lets_go_last(truth: Truth, step: Step) -> str:
    """I15: what the project calls gone is gone from every cell that answers; for a cell that does
    not, a tombstone stands on the hub. If a restore lost the Work, the hub has no record of the
    copy until the Work is written again; I6 checks that the orphan leaves its cell."""
    if step.after is not None or step.before is None or not step.plane.startswith("project/"):
        return ""
    if (step.plane, step.key.name) in truth.tampered:
        return ""
    home = step.before["metadata"].get("annotations", {}).get(labels.FEDERATION_NAMESPACE, "")
    if not home:
        return _never_guarded(truth, step)
    for cell in truth.providers:
        if cell in truth.given_up:
            continue
        copy = ObjectKey(DEPLOYMENT.resource, home, step.key.name)
        found = truth.rows.get(cell, {}).get(copy)
        if found is None:
            continue
        work_key = _work_key_of(found)
        work = truth.rows[HUB].get(work_key)
        is_lost = work is None and (HUB, work_key) in truth.lost_by_restore
        if is_lost and copy not in truth.rows[HUB]:
            continue
        if work is None or not is_terminating(work):
            return f"I15: {_where(step)} is called gone; {cell} has it and no tombstone stands"
        if is_true(_cluster(truth, cell) or {}, "Ready") and not _is_late(truth, cell):
            return f"I15: {_where(step)} is called gone; {cell} answers and has it"
    return ""


def _never_guarded(truth: Truth, step: Step) -> str:
    """Where it goes is recorded before anything is written there: else nobody cleans up."""
    for key, row in truth.of_resource(HUB, DEPLOYMENT.resource):
        found = upstream_key(row["metadata"].get("labels", {}), key.name)
        if found is not None and (found.plane, found.ref.name) == (step.plane, step.key.name):
            return f"I15: {_where(step)} is called gone; the hub has it, and that is on no record"
    return ""


def _work_key_of(copy: JsonObject) -> ObjectKey:
    notes = copy["metadata"].get("annotations", {})
    namespace, name = notes.get(labels.WORK_NAMESPACE, ""), notes.get(labels.WORK_NAME, "")
    return ObjectKey(WORK.resource, namespace, name)


def _cluster(truth: Truth, cell: PlaneName) -> JsonObject | None:
    key = ObjectKey(CLUSTER.resource, "", cell.partition("/")[2])
    return truth.rows[HUB].get(key)


def _is_late(truth: Truth, cell: PlaneName) -> bool:
    """Whether the hub only just found the cell to answer: its readers may not know yet."""
    return truth.now() - truth.ready_since_s.get(cell, 0.0) < READY_KNOWN_S


def i23_all_of_nothing_is_not_available(_truth: Truth, step: Step) -> str:
    """I23: Available needs at least one that is ready."""
    if step.after is None or not is_true(step.after, "Available"):
        return ""
    status = step.after["status"]
    if status.get("readyReplicas", 0) < 1:
        return f"I23: {_where(step)} is Available with nothing ready"
    return ""


def note_rebound(truth: Truth, step: Step) -> str:
    """Not a check: remembers which deployments left a cell."""
    before, after = step.before, step.after
    if before is not None and before["spec"]["resource"]["kind"] == DEPLOYMENT.kind:
        was, now = (row["spec"].get("clusters") if row else None for row in (before, after))
        if was and was != now:
            name = before["spec"]["resource"]["name"]
            truth.rebound[ObjectKey(DEPLOYMENT.resource, step.key.namespace, name)] = None
    return ""


def note_deleted_copy(truth: Truth, step: Step) -> str:
    """Not a check: records that a deployment that the hub still has is deleted on a cell, for
    example with its namespace. The deletion adds one to the generation, and the hub mirrors it."""
    row, original = step.after, truth.rows.get(HUB, {}).get(step.key)
    if not step.plane.startswith("cell/") or original is None:
        return ""
    if row is not None and is_terminating(row):
        seen = (HUB, step.key, original["metadata"]["uid"])
        truth.deleted_copies[seen] = row["metadata"]["generation"]
    return ""


def note_former_city(truth: Truth, step: Step) -> str:
    """Not a check: records which city a cell served before an operator gave it to another."""
    if step.before is not None and step.after is not None:
        rows = (step.before, step.after)
        was, now = (row["metadata"].get("labels", {}).get(labels.TOPOLOGY_CITY) for row in rows)
        if was and was != now:
            truth.former_city[cell_plane(step.key.name)] = (was, step.at_s)
    return ""


def note_ready(truth: Truth, step: Step) -> str:
    """Not a check: remembers since when the hub takes a cell for ready, and which it gives up."""
    cell = cell_plane(step.key.name)
    marks = (step.after or {"metadata": {}})["metadata"].get("annotations", {})
    if labels.FORCED_LEAVE in marks:
        truth.given_up[cell] = None
    was = step.before is not None and is_true(step.before, "Ready")
    if step.after is not None and is_true(step.after, "Ready") and not was:
        truth.ready_since_s[cell] = step.at_s
    return ""


CHECKS: dict[str, tuple[Check, ...]] = {
    INSTANCE.resource: (
        i1_one_instance_for_each_slot,
        i7_available_is_true,
        i14_removed_for_a_reason,
        i12_one_at_a_time,
        i15_instance_leaves_after_its_machine,
        i15_copy_stays_with_its_instance,
        i4_gate_goes_with_its_grant,
    ),
    CLAIM.resource: (i2_within_the_limit, i2_claim_outlives_its_machine),
    SERVER.resource: (i15_server_leaves_after_its_machine, i26_runs_with_the_data_on_record),
    WORK.resource: (i15_work_leaves_after_its_copy,),
    DEPLOYMENT.resource: (
        i15_project_lets_go_last,
        i23_all_of_nothing_is_not_available,
        i14_nothing_wanted_is_dropped,
        i16_served_until_replaced,
        note_deleted_copy,
    ),
    WORKLOAD.resource: (i23_all_of_nothing_is_not_available, i7_done_is_done),
    IP_ALLOCATION.resource: (i2_prefix_outlives_its_machines,),
    ENTITLEMENT.resource: (i8_first_entitled_stays,),
    CLUSTER.resource: (note_ready, note_former_city),
    BINDING.resource: (note_rebound,),
}


def _where(step: Step) -> str:
    return f"{step.plane} {step.key.resource} {step.key.namespace}/{step.key.name}"


Reconcile = Callable[[Any, Any], Awaitable[Any]]


@contextmanager
def exclusion_watched(complain: Callable[[str], None]) -> Iterator[None]:
    """Complains of a key that is in flight twice, as long as the context lasts."""
    groups = (
        registry.MANAGEMENT,
        registry.HUB,
        registry.CELL,
        registry.CLUSTER_CONTROLLERS,
        registry.PROJECT_MEMBERSHIP,
        registry.HUB_NAMESPACE_MEMBERSHIP,
    )
    found = [(controller, controller.reconcile) for group in groups for controller in group]
    for controller, reconcile in found:
        # In place, because hosts hold the controllers themselves.
        watched = watched_reconcile(controller.name, reconcile, complain)
        object.__setattr__(controller, "reconcile", watched)
    try:
        yield
    finally:
        for controller, reconcile in found:
            object.__setattr__(controller, "reconcile", reconcile)


def watched_reconcile(
    name: str, reconcile: Reconcile, complain: Callable[[str], None]
) -> Reconcile:
    in_flight: dict[tuple[str, Any], None] = {}

    async def exclusively(context: Any, key: Any) -> Any:
        place = (HOST.get(), key)  # a process that dies takes its work along
        if place in in_flight:
            complain(f"I20: {name} works on {key} twice at once on {HOST.get()}")
        in_flight[place] = None
        try:
            return await reconcile(context, key)
        finally:
            in_flight.pop(place, None)

    return exclusively


def usurper_complaint(truth: Truth, source: str, request: Request) -> str:
    """I11: a write of a manager that does not hold every lease, as it is sent."""
    if source not in MANAGERS or request.method in ("GET", "HEAD"):
        return ""
    if f"/{LEASE.plural}" in request.path:
        return ""
    for name in LEADER_LEASES:
        row = truth.rows[HUB].get(ObjectKey(LEASE.storage, LEASE_NAMESPACE, name))
        holder = row["spec"].get("holderIdentity", "") if row is not None else ""
        if holder != HOST.get():
            return f"I11: {HOST.get()} writes {request.path}, the lease {name} is {holder}'s"
    return ""
