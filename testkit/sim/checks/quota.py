"""What must hold of quota at every commit, over raw rows: I2 and I4.

Checks as in ``invariants.py``, which lists them.

I2: no claim is granted beyond the limit. Two pure functions over raw rows, for the observer.

A lower grant takes nothing away from what was granted before, so more than the limit may be in use
for a while; what may not happen is that still more is granted then.

What must hold after the calm where users ask for more than the quota of their project allows.

Who gets a machine is left to chance; how many there are is not: all that the grant allows, and not
one more. Whatever goes without says that it waits for quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.instance import QUOTA_GRANTED
from datum_compute.api.kinds import BUCKET, CLAIM, CLUSTER, GRANT, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.plane import HUB, cell_plane, project_plane
from datum_compute.api.reasons import Reason
from datum_compute.api.resourceclaim import GRANTED
from datum_compute.planning.rollout.gates import QUOTA
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.expected_state import Core
from testkit.sim.checks.state import Step, Truth, condition, is_terminating, is_true

# (project plane, consumer, resource type) -> (granted, limit), in base units.
Totals = dict[tuple[str, str, str], tuple[int, int]]


def quota_totals(rows: Iterable[tuple[str, JsonObject]]) -> Totals:
    """Of the objects of every plane, as (plane, body)."""
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
    """What was granted between the two beyond the limit of either, or the empty string."""
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


def i2_within_the_limit(truth: Truth, step: Step) -> str:
    """I2: nothing is granted beyond the limit. Only a claim that becomes granted can do that."""
    after, before = step.after, step.before
    if after is None or not is_true(after, GRANTED):
        return ""
    if before is not None and is_true(before, GRANTED):
        return ""
    rows = [
        (step.plane, row)
        for key, row in truth.rows[step.plane].items()
        if key.resource in (CLAIM.resource, GRANT.resource)
    ]
    earlier = [(plane, row) for plane, row in rows if row is not after]
    return quota_problem(quota_totals(earlier), quota_totals(rows))


def i2_claim_outlives_its_machine(truth: Truth, step: Step) -> str:
    """I2: what a machine uses is not given to others while it runs."""
    before = step.before
    if step.after is not None or before is None or not is_true(before, GRANTED):
        return ""
    told = before["metadata"].get("labels", {})
    cell, name = f"cell/{told.get(labels.SOURCE_CLUSTER)}", step.key.name.removeprefix(_PREFIX)
    slot = f"{told.get(labels.INSTANCE_NAMESPACE)}/{name}"
    if cell in truth.emptied or any(plane == cell for plane, _ in truth.tampered):
        return ""  # whoever knew of the machine is gone
    if cell in truth.given_up:
        return ""
    if _went_with_its_namespace(truth, step):
        return ""
    for plane, machine_id in truth.machines():
        lied_about = machine_id in truth.providers[plane].lied_about
        if plane == cell and machine_id.rpartition("/")[0] == slot and not lied_about:
            return f"I2: {step.plane} {step.key.name} is released, {cell} {machine_id} lives"
    return ""


def _went_with_its_namespace(truth: Truth, step: Step) -> bool:
    """A user may be rid of a namespace though a cell of it does not answer; its quota goes too."""
    assert step.before is not None
    namespace = truth.rows[step.plane].get(ObjectKey(NAMESPACE.resource, "", step.key.namespace))
    if namespace is None or not is_terminating(namespace):
        return False
    cell = step.before["metadata"].get("labels", {}).get(labels.SOURCE_CLUSTER, "")
    known = truth.rows.get(HUB, {}).get(ObjectKey(CLUSTER.resource, "", cell))
    return known is None or not is_true(known, "Ready")


def i4_gate_goes_with_its_grant(truth: Truth, step: Step) -> str:
    """I4: an instance loses its Quota gate only while a granted claim of its slot stands, and never
    gets it back."""
    before, after = step.before, step.after
    if not step.plane.startswith("cell/") or before is None or after is None:
        return ""
    if (step.plane, step.key.name) in truth.tampered:
        return ""
    was, is_now = _has_gate(before), _has_gate(after)
    if is_now and not was:
        return f"I4: {step.plane} {step.key.name} got its {QUOTA} gate back"
    if was and not is_now and not any(_granted_claims(truth, step)):
        return f"I4: {step.plane} {step.key.name} lost its {QUOTA} gate without a grant"
    return ""


def _has_gate(instance: JsonObject) -> bool:
    gates = instance.get("spec", {}).get("controller", {}).get("schedulingGates") or ()
    return any(gate.get("name") == QUOTA for gate in gates)


def _granted_claims(truth: Truth, step: Step) -> Iterator[ObjectKey]:
    """Of the slot, in whatever project."""
    home = (step.plane.partition("/")[2], step.key.namespace)
    for plane in truth.rows:
        if not plane.startswith("project/"):
            continue
        for key, row in truth.of_resource(plane, CLAIM.resource):
            told = row["metadata"].get("labels", {})
            place = (told.get(labels.SOURCE_CLUSTER), told.get(labels.INSTANCE_NAMESPACE))
            named = key.name == f"{_PREFIX}{step.key.name}"
            if named and place == home and is_true(row, GRANTED):
                yield key


def i2_grants_are_used_up(truth: Truth, core: Core) -> str:
    """I2, I6: of each project as many machines as are wanted, or as its grant allows."""
    running = _running(truth, core)
    for project in core.projects:
        wanted = min(core.demand(project), core.allowed - _held_by_hand(truth, project))
        found = running[project]
        if found > core.allowed:
            return f"I2: {project} runs {found} machines, {core.allowed} are allowed"
        # What a lost cell holds stays granted to it.
        if not core.lost and found != wanted:
            return f"{project} runs {found} machines, {wanted} are wanted and allowed"
    return ""


def _held_by_hand(truth: Truth, project: str) -> int:
    """An instance that an operator made, gates and all, was granted its share like any other."""
    claims = truth.of_resource(project_plane(project), CLAIM.resource)
    return sum("-poison" in key.name and is_true(row, GRANTED) for key, row in claims)


def i22_waiting_is_for_quota(truth: Truth, core: Core) -> str:
    """I22: an instance without a machine says that it waits for quota, on its cell and to users."""
    alive = {(cell, machine_id.rpartition("/")[0]) for cell, machine_id in truth.machines()}
    for cell in truth.providers:
        if cell.partition("/")[2] in core.lost:
            continue
        for key, row in truth.of_resource(cell, INSTANCE.resource):
            if (cell, f"{key.namespace}/{key.name}") in alive or key.name.startswith("poison"):
                continue
            if _reason(row, QUOTA_GRANTED) != Reason.QUOTA_EXCEEDED:
                return f"{cell} {key.name} has no machine and does not say that it lacks quota"
            shown = [r for r in _projections(truth, core, key.name) if not is_terminating(r)]
            if [_reason(r, "Ready") for r in shown] != [Reason.PENDING_QUOTA]:
                return f"{key.name} waits for quota and its project does not know"
    return ""


def i2_buckets_add_up(truth: Truth, core: Core) -> str:
    """I2, I6: what buckets show as used is what granted claims ask for."""
    for project in core.projects:
        plane = project_plane(project)
        rows = [(plane, row) for row in truth.rows.get(plane, {}).values()]
        used = Counter[str]()
        for (_, _, resource_type), (granted, _) in quota_totals(rows).items():
            used[resource_type] += granted
        for _, row in truth.of_resource(plane, BUCKET.resource):
            shown = (row.get("status") or {}).get("allocated", 0)
            if shown != used[row["spec"]["resourceType"]]:
                return f"{plane} shows {shown} of {row['spec']['resourceType']} as used"
    return ""


def i2_no_claim_outlives_its_slot(truth: Truth, core: Core) -> str:
    """I2, I6: what an instance was given on a cell that answers is given back when it is gone."""
    for project in core.projects if not truth.tampered else ():
        for key, row in truth.of_resource(project_plane(project), CLAIM.resource):
            told = row["metadata"].get("labels", {})
            cell = told.get(labels.SOURCE_CLUSTER, "")
            if cell not in core.cells or cell in core.lost:
                continue
            home, name = (
                told.get(labels.INSTANCE_NAMESPACE, ""),
                key.name.removeprefix(_PREFIX),
            )
            slot = ObjectKey(INSTANCE.resource, home, name)
            if slot not in truth.rows.get(cell_plane(cell), {}):
                return f"{project} {key.name}: {cell} has no such instance"
    return ""


def i6_workloads_count_what_runs(truth: Truth, core: Core) -> str:
    """I6, I7: what the workloads of a project call ready is what runs of it."""
    running = _running(truth, core)
    for project in core.projects:
        rows = dict(truth.of_resource(project_plane(project), WORKLOAD.resource))
        if sorted(key.name for key in rows) != sorted(n for p, n in core.wanted if p == project):
            return f"{project} has the workloads {sorted(key.name for key in rows)}"
        ready = sum((row.get("status") or {}).get("readyReplicas", 0) for row in rows.values())
        if not core.lost and ready != running[project]:
            return f"{project} calls {ready} ready, {running[project]} machines run"
    return ""


def _running(truth: Truth, core: Core) -> Counter[str]:
    """Machines by project, on the cells that are not lost."""
    homes = {
        f"ns-{row['metadata']['uid']}": project
        for project in core.projects
        for _, row in truth.of_resource(project_plane(project), NAMESPACE.resource)
    }
    found: Counter[str] = Counter()
    for cell, machine_id in truth.machines():
        # What an operator made by hand, without gates, nobody granted.
        if cell.partition("/")[2] not in core.lost and "/poison" not in machine_id:
            found[homes.get(machine_id.partition("/")[0], "nobody")] += 1
    return found


def _projections(truth: Truth, core: Core, name: str) -> Iterator[JsonObject]:
    for project in core.projects:
        for key, row in truth.of_resource(project_plane(project), INSTANCE.resource):
            if key.name == name:
                yield row


def _reason(row: JsonObject, type_: str) -> str:
    found = condition(row, type_)
    return str(found["reason"]) if found is not None else ""
