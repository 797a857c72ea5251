"""What must hold of projects: what is gone is gone everywhere, and nothing runs without access.

Checks as in ``convergence.py`` and ``invariants.py``, which list them. Who is there and who may run
what is read off the rows of the platform.

What must hold of copies on the hub that lead to nobody, after the calm (``convergence.py``).
"""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.identity import decoded_project, federation_namespace
from datum_compute.api.kinds import (
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    IP_ALLOCATION,
    NAMESPACE,
    PROJECT,
)
from datum_compute.api.plane import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.api.quotametrics import SERVICE as COMPUTE
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.expected_state import Core
from testkit.sim.checks.state import Step, Truth, is_terminating


def projects_there(truth: Truth) -> set[str]:
    return {key.name for key, _ in truth.of_resource(PLATFORM, PROJECT.resource)}


def entitled_projects(truth: Truth) -> set[str]:
    """Those whose consumer of compute is Active, not suspended and not leaving."""
    return {
        row["spec"]["consumerProjectRef"]["name"]
        for _, row in truth.of_resource(PLATFORM, CONSUMER.resource)
        if row["spec"]["serviceRef"]["name"] == COMPUTE
        and row.get("status", {}).get("phase") == "Active"
        and not row["spec"].get("suspended")
        and not is_terminating(row)
    }


def i5_deleted_projects_leave_nothing(truth: Truth, core: Core) -> str:
    """I5: no plane, no home, no prefix and no consumer of a project that is gone."""
    there = projects_there(truth)
    for plane in truth.rows:
        if plane.startswith("project/") and plane.partition("/")[2] not in there:
            return f"{plane} is there, its project is not"
    for key, row in truth.of_resource(PLATFORM, CONSUMER.resource):
        if row["spec"]["consumerProjectRef"]["name"] not in there:
            return f"consumer {key.name} is there, its project is not"
    if core.lost or truth.emptied:
        return ""  # a cell that is away may hold the rest
    for key, row in truth.of_resource(PLATFORM, IP_ALLOCATION.resource):
        if row["spec"]["project"] not in there:
            return f"{key.name} is on record for {row['spec']['project']}, which is gone"
    for plane in (HUB, *map(cell_plane, core.cells)):
        for key, row in truth.rows.get(plane, {}).items():
            of = decoded_project(row["metadata"].get("labels", {}).get(labels.UPSTREAM_CLUSTER, ""))
            if of and of not in there and (plane, key.name) not in truth.tampered:
                return f"{plane} {key.resource} {key.name} is of {of}, which is gone"
    return ""


def i16_nothing_runs_without_access(truth: Truth, core: Core) -> str:
    """I16: every machine belongs to a project that may use compute."""
    entitled = entitled_projects(truth)
    for cell, machine_id in truth.machines():
        if cell.partition("/")[2] in core.lost:
            continue
        home = ObjectKey(NAMESPACE.resource, "", machine_id.partition("/")[0])
        row = truth.rows.get(cell, {}).get(home)
        marks = row["metadata"].get("labels", {}) if row is not None else {}
        project = decoded_project(marks.get(labels.UPSTREAM_CLUSTER, ""))
        if project and project not in entitled:
            return f"{machine_id} runs on {cell}; {project} has no access"
    return ""


def i8_first_entitled_stays(_truth: Truth, step: Step) -> str:
    """I8: when a project was entitled first is said once and never taken back."""
    if step.before is None or step.after is None or step.key.resource != ENTITLEMENT.resource:
        return ""
    before = step.before.get("status", {}).get("entitledAt")
    after = step.after.get("status", {}).get("entitledAt")
    if before and before != after:
        return f"I8: {step.plane} {step.key.name} was entitled at {before}, now {after}"
    return ""


def i6_strangers_are_set_apart(truth: Truth, _core: Core) -> str:
    """I6: a copy that leads to no slot of a deployment is quarantined after its grace period."""
    homes = {key.name: _source(row) for key, row in truth.of_resource(HUB, NAMESPACE.resource)}
    for key, row in truth.of_resource(HUB, INSTANCE.resource):
        project, namespace = said = _source(row)
        leads_home = project and namespace and homes.get(key.namespace, said) == said
        marked = labels.QUARANTINE_FINGERPRINT in row["metadata"].get("annotations", {})
        if is_terminating(row) or marked:
            continue
        if not leads_home:
            return f"the hub's copy {key.name} leads to nobody and is not set apart"
        if not _has_slot_name(key.name, row):
            return f"the hub's copy {key.name} has no ordinal and is not set apart"
    return ""


def _has_slot_name(name: str, row: JsonObject) -> bool:
    deployment = row["metadata"].get("labels", {}).get(labels.DEPLOYMENT_NAME)
    prefix, _, end = name.rpartition("-")
    return prefix == (deployment or prefix) and end.isdecimal() and str(int(end)) == end


def i6_homes_say_whose_they_are(truth: Truth, core: Core) -> str:
    """I6: a hub namespace with deployments names the project and namespace that it stands for:
    others believe it."""
    used = {key.namespace for key, _ in truth.of_resource(HUB, DEPLOYMENT.resource)}
    for project in core.projects:
        for key, row in truth.of_resource(project_plane(project), NAMESPACE.resource):
            home = federation_namespace(row["metadata"]["uid"])
            found = truth.rows.get(HUB, {}).get(ObjectKey(NAMESPACE.resource, "", home))
            if found is None or home not in used or is_terminating(found):
                continue
            if (said := _source(found)) != (project, key.name):
                return f"{home} says that it is of {said}, and is of {project}/{key.name}"
    return ""


def _source(row: JsonObject) -> tuple[str | None, str]:
    """The project and namespace that an object of the hub stands for, as it says."""
    said = row["metadata"].get("labels", {})
    project = decoded_project(said.get(labels.UPSTREAM_CLUSTER, ""))
    return project, said.get(labels.UPSTREAM_NAMESPACE, "")
