"""The life of a Namespace: active, terminating while it is emptied, finalized, gone.

The server keeps three rules: nothing is created in a namespace that is absent or terminating,
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
from datum_compute.server.encoding.responses import conflict, field_forbidden, forbidden, not_found
from datum_compute.server.verbs.metadata import ordered
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"
_SHOWN_MAX = 5
_PERMANENT = ("default", "kube-system", "kube-public", QUOTA_NAMESPACE)


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


def prepared_for_create(new: JsonObject) -> JsonObject:
    return {**new, "metadata": labelled(new["metadata"]), "spec": {"finalizers": [FINALIZER]}}


def labelled(metadata: JsonObject) -> JsonObject:
    """A namespace always carries its name as a label, so that selectors can find it."""
    labels = {**metadata.get("labels", {}), NAME_LABEL: metadata["name"]}
    return ordered({**metadata, "labels": labels})


def activated(new: JsonObject) -> JsonObject:
    return {**new, "status": {"phase": "Active"}}


def terminating(new: JsonObject) -> JsonObject:
    return {**new, "status": {**new.get("status", {}), "phase": "Terminating"}}


def finalizer_problems(new: JsonObject, old: JsonObject) -> list[Cause]:
    """A terminating namespace only loses finalizers."""
    before = old.get("spec", {}).get("finalizers", [])
    if "deletionTimestamp" not in old["metadata"] or not isinstance(before, list):
        return []
    found = new["spec"]["finalizers"]
    added = [f for f in found if f not in before] if isinstance(found, list) else []
    if not added:
        return []
    why = "no finalizers can be added to a namespace that is being deleted"
    return [field_forbidden("spec.finalizers", why)]


def check_accepts(
    context: ServerContext, plane: PlaneName, namespace: str, kind: KindInfo[Any], name: str
) -> None:
    """Raise unless objects may be created in the namespace."""
    record = context.store.get(plane, ObjectKey(NAMESPACE.resource, "", namespace))
    if record is None:
        raise not_found(NAMESPACE, namespace)
    if record.terminating:
        cause = Cause(
            "metadata.namespace",
            "NamespaceTerminating",
            f"namespace {namespace} is being terminated",
        )
        why = (
            f"unable to create new content in namespace {namespace} because it is being terminated"
        )
        raise forbidden(kind, name, why, [cause])


def check_may_go(kind: KindInfo[Any], name: str) -> None:
    """A plane without its own namespaces serves nobody."""
    if name in _PERMANENT:
        raise Forbidden(
            f'{kind.plural} "{name}" is forbidden: this namespace may not be deleted',
            name=name,
            kind=kind.plural,
        )


def check_empty(
    context: ServerContext, catalogue: ResourceRegistry, plane: PlaneName, namespace: str
) -> None:
    """Raise Conflict if the namespace contains objects, or one is being created in it."""
    found = [
        f"{resource}/{record.key.name}"
        for resource in catalogue.namespaced_storage()
        for record in context.store.snapshot(plane, resource, namespace).records
        if not _is_default_object(record)
    ]
    if found:
        shown = ", ".join(found[:_SHOWN_MAX]) + (", ..." if len(found) > _SHOWN_MAX else "")
        why = f"the namespace still holds {len(found)} objects ({shown}); delete them first"
        raise conflict(NAMESPACE, namespace, why)
    if context.in_flight_creates.any_in_namespace(plane, namespace):
        why = "an object is being created in the namespace; try again"
        raise conflict(NAMESPACE, namespace, why)
