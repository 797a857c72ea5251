"""What must hold of copies on the hub that lead to nobody, after the calm (``settled.py``)."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.identity import decoded_project, federation_namespace
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.plane import HUB, project_plane
from datum_compute.store.journal import ObjectKey
from testkit.sim.checks.core import Core
from testkit.sim.checks.truth import Truth, is_terminating


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
