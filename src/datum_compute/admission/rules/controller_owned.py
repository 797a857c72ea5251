"""Finalizers that stand for something the platform has still to undo.

Whoever takes one away leaves machines, prefixes or copies behind that nobody looks for any more. So
only those may who hold the verb ``release`` on the kind: the controllers, and operators who know
what they leave behind. A controller with a finalizer of its own needs a line here; a test says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from datum_compute.admission.questions import AccessQuery, Answers, Write
from datum_compute.api import labels
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    BINDING,
    CLAIM,
    CLUSTER,
    CLUSTER_BINDING,
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    NETWORK,
    PROJECT,
    SERVER,
    SUBNET,
    WORK,
    WORKLOAD,
)
from datum_compute.api.labels import CHANGED_BY, CREATED_BY
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo

RELEASE = "release"  # the verb
_FIELD = "metadata.finalizers"

GUARDS: Mapping[str, tuple[str, ...]] = {
    WORKLOAD.resource: (labels.WORKLOAD_FINALIZER,),
    DEPLOYMENT.resource: (
        labels.FEDERATOR_FINALIZER,
        labels.WORKLOAD_FINALIZER,
        labels.REFERENCED_DATA_FINALIZER,
    ),
    CLAIM.resource: (labels.CLAIM_FINALIZER,),
    INSTANCE.resource: (labels.INSTANCE_FINALIZER, labels.PROVISIONER_FINALIZER),
    SERVER.resource: (labels.DRIVER_FINALIZER,),
    NETWORK.resource: (labels.NETWORK_FINALIZER,),
    SUBNET.resource: (labels.SUBNET_FINALIZER,),
    BINDING.resource: (labels.BINDING_FINALIZER,),
    CLUSTER_BINDING.resource: (labels.BINDING_FINALIZER,),
    WORK.resource: (labels.EXECUTION_FINALIZER,),
    PROJECT.resource: (labels.PROJECT_FINALIZER,),
    ENTITLEMENT.resource: (labels.ENTITLEMENT_FINALIZER,),
    CONSUMER.resource: (labels.CONSUMER_FINALIZER,),
    CLUSTER.resource: (labels.CLUSTER_FINALIZER,),
}


def released_guards(kind: KindInfo[Any], new: JsonObject, old: JsonObject) -> list[str]:
    """Those that the write would take away."""
    kept = new["metadata"].get("finalizers", ())
    return [f for f in _guards_of(kind, old) if f not in kept]


def with_guards(kind: KindInfo[Any], sent: JsonObject, old: JsonObject) -> JsonObject:
    """A replacement that says nothing of finalizers, as a manifest from a file, with those that
    stand for something."""
    guards, metadata = _guards_of(kind, old), sent.get("metadata")
    if not guards or not isinstance(metadata, dict) or "finalizers" in metadata:
        return sent
    return {**sent, "metadata": {**metadata, "finalizers": guards}}


def guard_causes(kind: KindInfo[Any], released: list[str]) -> list[Cause]:
    why = (
        f"Forbidden: {', '.join(released)} stays until the platform has undone what it stands for; "
        f"delete the {kind.kind} and wait, and if it stays ask an operator (to remove a finalizer "
        f'by hand needs the verb "{RELEASE}" on {kind.resource})'
    )
    return [Cause(_FIELD, "FieldValueForbidden", why)] if released else []


def _guards_of(kind: KindInfo[Any], obj: JsonObject) -> list[str]:
    known = GUARDS.get(kind.resource, ())
    return [f for f in obj["metadata"].get("finalizers", ()) if f in known]


# --- WorkloadDeployments and Instances are written by controllers: users read them
# A controller is whoever holds the verb ``control`` on the resource; the roles of the platform give
# it to managers and cells, and no role of a project has it. So gates, templates and placements are
# out of the reach of everybody else, and copies in a project stay what their cell says. Taking away
# an owner or a finalizer needs no such right (garbage collectors do), nor do labels and annotations
# of other domains, a status (which has rights of its own) or a scale.


CONTROL = "control"
_MARKS = ("labels", "annotations")
_DOMAINS = ("datumapis.com", "miloapis.com", "topology.datum.net")
_SUBDOMAINS = tuple(f".{domain}" for domain in _DOMAINS)


def asks_who_controls(write: Write) -> Iterable[AccessQuery]:
    if _is_controllers_work(write):
        yield _right(write)


def controllers_write(write: Write, answers: Answers) -> Iterable[Cause]:
    # What was not asked needs no right.
    if not answers.allowed.get(_right(write), True):
        plural = write.kind.plural
        why = (
            f"{plural} are written by controllers and cannot be changed by hand; "
            f"change the Workload instead"
        )
        yield Cause("spec", "FieldValueForbidden", f"Forbidden: {why}")


def _right(write: Write) -> AccessQuery:
    return AccessQuery(CONTROL, write.kind.group, write.kind.plural, write.namespace)


def _is_controllers_work(write: Write) -> bool:
    if write.old is None or write.changes_spec:
        return True
    new, old = write.new["metadata"], write.old["metadata"]
    return any(_marks_differ(new.get(field), old.get(field)) for field in _MARKS)


def _marks_differ(new: JsonObject | None, old: JsonObject | None) -> bool:
    """Whether those differ that controllers act upon."""
    if new == old:
        return False
    before, after = old or {}, new or {}
    changed = (key for key in {**before, **after} if before.get(key) != after.get(key))
    return any(_is_ours(key) for key in changed)


def _is_ours(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in _DOMAINS or domain.endswith(_SUBDOMAINS))


# --- A Workload says who changed its spec last, and a Project who made it: history
# (WorkloadRevision) takes the one name from there, the plane of the project its first administrator
# the other.
#
# The server writes it and nobody else can: what a client claims is put right.


def with_author(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None, user: str
) -> JsonObject:
    if kind.resource == PROJECT.resource:
        return _marked(new, CREATED_BY, user if old is None else _author(old, CREATED_BY))
    if kind.resource != WORKLOAD.resource:
        return new
    is_changed = old is None or new.get("spec") != old.get("spec")
    return _marked(new, CHANGED_BY, user if is_changed else _author(old, CHANGED_BY))


def _marked(new: JsonObject, mark: str, author: str) -> JsonObject:
    if _author(new, mark) == author:
        return new
    metadata = new.get("metadata") or {}
    marks = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != mark}
    if author:
        marks[mark] = author
    return {**new, "metadata": {**metadata, "annotations": marks}}


def _author(obj: JsonObject | None, mark: str) -> str:
    metadata = (obj or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(mark, ""))
