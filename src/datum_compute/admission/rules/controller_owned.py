"""Metadata and objects that only controllers may write: finalizers, specs, authors.

A finalizer of the platform remains until a controller has finished its cleanup. Removing the
finalizer earlier leaks machines, prefixes or copies. Only users with the verb ``release`` on the
kind may remove it: controllers, and operators who accept the leak. A test fails if a controller has
a finalizer that is not listed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from datum_compute.admission.queries import AccessQuery, Answers, Write
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

PROTECTED_FINALIZERS: Mapping[str, tuple[str, ...]] = {
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


def removed_finalizers(kind: KindInfo[Any], new: JsonObject, old: JsonObject) -> list[str]:
    """Return the protected finalizers that the write would remove."""
    kept = new["metadata"].get("finalizers", ())
    return [f for f in _protected_finalizers(kind, old) if f not in kept]


def keep_protected_finalizers(kind: KindInfo[Any], sent: JsonObject, old: JsonObject) -> JsonObject:
    """Add the protected finalizers to a replacement without the field, such as a manifest."""
    finalizers, metadata = _protected_finalizers(kind, old), sent.get("metadata")
    if not finalizers or not isinstance(metadata, dict) or "finalizers" in metadata:
        return sent
    return {**sent, "metadata": {**metadata, "finalizers": finalizers}}


def finalizer_causes(kind: KindInfo[Any], removed: list[str]) -> list[Cause]:
    why = (
        f"{', '.join(removed)} stays until the cleanup has finished; delete the "
        f"{kind.kind} and wait. If the finalizer remains, ask an operator (removing a finalizer "
        f'by hand requires the verb "{RELEASE}" on {kind.resource})'
    )
    return [Cause.forbidden(_FIELD, why)] if removed else []


def _protected_finalizers(kind: KindInfo[Any], obj: JsonObject) -> list[str]:
    known = PROTECTED_FINALIZERS.get(kind.resource, ())
    return [f for f in obj["metadata"].get("finalizers", ()) if f in known]


# --- WorkloadDeployments and Instances: only controllers write them
# A controller is a user with the verb ``control`` on the resource. The roles of the platform grant
# it to managers and cells; no role of a project contains it. Other users therefore cannot change
# gates, templates and placements, and copies in a project match the state of their cell. The verb
# is not needed to remove an owner or a finalizer (as garbage collectors do), to change labels and
# annotations of other domains, or to write the status or the scale.


CONTROL = "control"
_KEY_FIELDS = ("labels", "annotations")
_DOMAINS = ("datumapis.com", "miloapis.com", "topology.datum.net")
_SUBDOMAINS = tuple(f".{domain}" for domain in _DOMAINS)


def query_controller_access(write: Write) -> Iterable[AccessQuery]:
    if _needs_control(write):
        yield _control_access(write)


def check_controller_access(write: Write, answers: Answers) -> Iterable[Cause]:
    # Without a query, the write needs no permission.
    if not answers.allowed.get(_control_access(write), True):
        plural = write.kind.plural
        why = (
            f"{plural} are written by controllers and cannot be changed by hand; "
            f"change the Workload instead"
        )
        yield Cause.forbidden("spec", why)


def _control_access(write: Write) -> AccessQuery:
    return AccessQuery(CONTROL, write.kind.group, write.kind.plural, write.namespace)


def _needs_control(write: Write) -> bool:
    if write.old is None or write.changes_spec:
        return True
    new, old = write.new["metadata"], write.old["metadata"]
    return any(_platform_keys_differ(new.get(field), old.get(field)) for field in _KEY_FIELDS)


def _platform_keys_differ(new: JsonObject | None, old: JsonObject | None) -> bool:
    """Return True if a label or annotation of the platform differs: controllers act on those."""
    if new == old:
        return False
    before, after = old or {}, new or {}
    changed = (key for key in {**before, **after} if before.get(key) != after.get(key))
    return any(_is_platform_key(key) for key in changed)


def _is_platform_key(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain in _DOMAINS or domain.endswith(_SUBDOMAINS))


# --- Annotations with the user who changed a Workload last, and who created a Project
# WorkloadRevisions copy the first one. The second one becomes the first administrator of the
# project. The server sets both and overwrites values that clients send.


def with_author(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None, user: str
) -> JsonObject:
    if kind.resource == PROJECT.resource:
        return _annotate(new, CREATED_BY, user if old is None else _author(old, CREATED_BY))
    if kind.resource != WORKLOAD.resource:
        return new
    is_changed = old is None or new.get("spec") != old.get("spec")
    return _annotate(new, CHANGED_BY, user if is_changed else _author(old, CHANGED_BY))


def _annotate(new: JsonObject, key: str, author: str) -> JsonObject:
    if _author(new, key) == author:
        return new
    metadata = new.get("metadata") or {}
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != key}
    if author:
        annotations[key] = author
    return {**new, "metadata": {**metadata, "annotations": annotations}}


def _author(obj: JsonObject | None, key: str) -> str:
    metadata = (obj or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(key, ""))
