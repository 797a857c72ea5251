"""The lifecycle of a Namespace: active, terminating while it is emptied, finalized, removed.

Rules: nothing is created in a namespace that is absent or terminating,
``spec.finalizers`` changes only through the finalize endpoint, and a namespace is removed only when
it is empty. A controller deletes its contents. The objects that the server itself creates in each
namespace do not count: they are removed together with it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from datum_compute.api.core import NAMESPACE_DEFAULT_OBJECTS
from datum_compute.api.errors import Cause, Forbidden
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.api.quota import QUOTA_NAMESPACE
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ResourceRegistry
from datum_compute.server.encoding.body import encode_at_version
from datum_compute.server.encoding.responses import conflict, forbidden
from datum_compute.server.verbs.metadata import order_metadata
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
_SHOWN_MAX = 5
_PERMANENT_NAMESPACES = ("default", "kube-system", "kube-public", QUOTA_NAMESPACE)


def _is_default_object(record: Record) -> bool:
    is_default = (record.key.resource, record.key.name) in NAMESPACE_DEFAULT_OBJECTS
    return is_default and not record.finalizers


async def remove_default_objects(context: ServerContext, plane: PlaneName, namespace: str) -> None:
    """Remove the objects that the server created in the namespace."""
    for resource, name in NAMESPACE_DEFAULT_OBJECTS:
        record = context.store.get(plane, ObjectKey(resource, namespace, name))
        if record is not None:
            obj = decode(record.body)
            await context.store.delete(
                plane, record.key, record.version, partial(encode_at_version, obj)
            )


def prepare_namespace(new: JsonObject) -> JsonObject:
    return {
        **new,
        "metadata": with_name_label(new["metadata"]),
        "spec": {"finalizers": [FINALIZER]},
    }


def with_name_label(metadata: JsonObject) -> JsonObject:
    """Add the label with the name of the namespace, so that selectors can find it."""
    labels = {**metadata.get("labels", {}), NAME_LABEL: metadata["name"]}
    return order_metadata({**metadata, "labels": labels})


def with_active_phase(new: JsonObject) -> JsonObject:
    return {**new, "status": {"phase": "Active"}}


def with_terminating_phase(new: JsonObject) -> JsonObject:
    return {**new, "status": {**new.get("status", {}), "phase": "Terminating"}}


def validate_finalizers(new: JsonObject, old: JsonObject) -> list[Cause]:
    """Return a cause for each finalizer that a write adds to a terminating namespace."""
    old_finalizers = old.get("spec", {}).get("finalizers", [])
    if "deletionTimestamp" not in old["metadata"] or not isinstance(old_finalizers, list):
        return []
    finalizers = new["spec"]["finalizers"]
    if not isinstance(finalizers, list):
        return []
    added = [finalizer for finalizer in finalizers if finalizer not in old_finalizers]
    if not added:
        return []
    why = "no finalizers can be added to a namespace that is being deleted"
    return [Cause.forbidden("spec.finalizers", why)]


def terminating_error(kind: KindInfo[Any], key: ObjectKey) -> Forbidden:
    """Return the error for the create of an object in a terminating namespace."""
    namespace = key.namespace
    cause = Cause(
        "metadata.namespace",
        "NamespaceTerminating",
        f"namespace {namespace} is being terminated",
    )
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    return forbidden(kind, key.name, why, [cause])


def check_deletable(kind: KindInfo[Any], name: str) -> None:
    """Raise Forbidden for the namespaces that every plane needs."""
    if name in _PERMANENT_NAMESPACES:
        raise Forbidden(
            f'{kind.plural} "{name}" is forbidden: this namespace may not be deleted',
            name=name,
            kind=kind.plural,
        )


def check_empty(
    context: ServerContext, registry: ResourceRegistry, plane: PlaneName, namespace: str
) -> None:
    """Raise Conflict if the namespace contains objects, or one is being created in it."""
    objects = [
        f"{resource}/{record.key.name}"
        for resource in registry.namespaced_storage()
        for record in context.store.snapshot(plane, resource, namespace).records
        if not _is_default_object(record)
    ]
    if objects:
        listed = ", ".join(objects[:_SHOWN_MAX]) + (", ..." if len(objects) > _SHOWN_MAX else "")
        why = f"the namespace still holds {len(objects)} objects ({listed}); delete them first"
        raise conflict(NAMESPACE, namespace, why)
    # A create checks that the namespace is active, and then waits for the disk.
    if any(key.namespace == namespace for key in context.store.pending_creates(plane)):
        why = "an object is being created in the namespace; try again"
        raise conflict(NAMESPACE, namespace, why)
