"""What must hold after the calm where users ask for more than the quota of their project allows.

Who gets a machine is left to chance; how many there are is not: all that the grant allows, and not
one more. Whatever goes without says that it waits for quota.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.instance import QUOTA_GRANTED
from datum_compute.api.kinds import BUCKET, CLAIM, INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.plane import cell_plane, project_plane
from datum_compute.api.reasons import Reason
from datum_compute.api.resourceclaim import GRANTED
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.core import Core
from testkit.sim.checks.quota_totals import quota_totals
from testkit.sim.checks.truth import Truth, condition, is_terminating, is_true

_PREFIX = "instance-"


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
            home, name = told.get(labels.INSTANCE_NAMESPACE, ""), key.name.removeprefix(_PREFIX)
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
