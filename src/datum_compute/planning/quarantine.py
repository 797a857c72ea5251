"""Quarantine of Instances on the hub that cannot be attributed to a slot of a deployment.

A copy is quarantined if its labels name no project, another project than the one its namespace
stands for, or a deployment that the project does not have, or if its name does not end in an
ordinal of its deployment. The writers of the labels may restore them, so there is a grace period.
After that the copy is marked with the reason, the time and a fingerprint of its labels. Because of
the fingerprint it is reported only once. It is never deleted. When its labels change the mark is
removed and the copy is checked again at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from datum_compute.api import labels
from datum_compute.api.identity import decoded_project, deployment_of
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB
from datum_compute.planning.plan import Patch, Plan
from datum_compute.planning.rollout.slots import is_slot_name

# How long others have to put a copy right.
GRACE_S = 60.0
# One that is set apart is looked at again after so long, should an event be missed.
RECHECK_S = 60.0

NO_IDENTITY = "IdentityMissing"
BAD_IDENTITY = "IdentityUndecodable"
NO_DEPLOYMENT = "DeploymentNotFound"
FOREIGN_IDENTITY = "IdentityForeign"
NO_ORDINAL = "OrdinalInvalid"
REASONS = (NO_IDENTITY, BAD_IDENTITY, FOREIGN_IDENTITY, NO_ORDINAL, NO_DEPLOYMENT)

_IDENTITY = (labels.UPSTREAM_CLUSTER, labels.UPSTREAM_NAMESPACE, labels.DEPLOYMENT_NAME)

Problem = tuple[str, str]  # reason and message


def fingerprint_of(instance: Instance) -> str:
    """Of all that says whose it is."""
    said = "\0".join(instance.metadata.labels.get(label, "") for label in _IDENTITY)
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def identity_problem(instance: Instance, home: Namespace | None) -> Problem | None:
    """What is wrong with a copy whatever else there is. ``home`` is the hub namespace it is in, if
    that is known: what a copy says of itself is only a label."""
    told = instance.metadata.labels
    project, namespace = told.get(labels.UPSTREAM_CLUSTER), told.get(labels.UPSTREAM_NAMESPACE)
    if not project or not namespace:
        missing = labels.UPSTREAM_NAMESPACE if project else labels.UPSTREAM_CLUSTER
        return NO_IDENTITY, f"Label {missing} is missing: nobody knows which project it is of"
    if decoded_project(project) is None:
        return BAD_IDENTITY, f"Label {labels.UPSTREAM_CLUSTER} is {project!r}, which is no project"
    said = home.metadata.labels if home is not None else told
    if _source(said) != _source(told):
        name = instance.metadata.namespace
        return FOREIGN_IDENTITY, f"{project}/{namespace} is not what namespace {name} stands for"
    return slot_name_problem(instance)


def slot_name_problem(instance: Instance) -> Problem | None:
    """Return a problem if the name is not ``<deployment>-<ordinal>``."""
    name = instance.metadata.name
    deployment = deployment_of(name, instance.metadata.labels)
    if is_slot_name(deployment, name):
        return None
    return NO_ORDINAL, f"Name {name} does not end in an ordinal of deployment {deployment!r}"


def _source(told: Mapping[str, str]) -> tuple[str | None, str]:
    project = decoded_project(told.get(labels.UPSTREAM_CLUSTER, ""))
    return project, told.get(labels.UPSTREAM_NAMESPACE, "")


def deployment_problem(project: str, namespace: str, name: str) -> Problem:
    return NO_DEPLOYMENT, f"Project {project} has no WorkloadDeployment {namespace}/{name}"


def is_quarantined(instance: Instance) -> bool:
    """As what it says of itself now."""
    noted = instance.metadata.annotations.get(labels.QUARANTINE_FINGERPRINT)
    return noted == fingerprint_of(instance)


def quarantine_reason(instance: Instance) -> str:
    return instance.metadata.annotations.get(labels.QUARANTINE_REASON, "")


def plan_quarantine(instance: Instance, problem: Problem, waited_s: float, now: str) -> Plan:
    """``waited_s`` is for how long the problem has been known."""
    if instance.is_terminating or is_quarantined(instance):
        return Plan(requeue_after_s=RECHECK_S)
    if waited_s < GRACE_S:
        return Plan(requeue_after_s=GRACE_S - waited_s)
    reason, message = problem
    marks = dict(
        zip(labels.QUARANTINE, (reason, message, fingerprint_of(instance), now), strict=True)
    )
    return Plan((_marked(instance, marks, reason),), requeue_after_s=RECHECK_S)


def plan_readmission(instance: Instance) -> Plan:
    """Without the marks, for one that has no problem (any more), or not the one it was marked
    for."""
    marked = [mark for mark in labels.QUARANTINE if mark in instance.metadata.annotations]
    if instance.is_terminating or not marked:
        return Plan()
    return Plan((_marked(instance, dict.fromkeys(marked), "says something else now"),))


def _marked(instance: Instance, marks: dict[str, str] | dict[str, None], reason: str) -> Patch:
    metadata = {"resourceVersion": instance.metadata.resource_version, "annotations": marks}
    return Patch(HUB, INSTANCE, ref_of(instance), {"metadata": metadata}, reason)
