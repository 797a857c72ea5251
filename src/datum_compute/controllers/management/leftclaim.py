"""Deletes quota claims that no cell will release, in every project.

A cell releases the claims of its instances. It cannot if it has left the federation, or if its copy
of the namespace is gone: the labels of that namespace name the project.

- ``left-claim`` is keyed by the name of a Cluster. It acts if the hub has no such Cluster.
- ``orphaned-claim`` is keyed by the name of a hub namespace. It acts if the hub has neither the
  namespace nor a Work that carries it or an object in it. A Work stays until its cell has confirmed
  the removal, so the claims of a cell that does not answer stay too.

Both read the hub live: quota is never released because an object is missing from a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import source_uid
from datum_compute.api.kinds import CLAIM, CLUSTER, NAMESPACE, WORK
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, plane_role
from datum_compute.api.work import Work
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.leftclaims import plan_left_claims
from datum_compute.planning.plan import Plan
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, watches
from datum_compute.runtime.informer import ObjectChange

RECHECK_S = 60.0


async def reconcile_cluster(context: Context, key: Key) -> Outcome:
    hub, cell = context.planes.hub, key.ref.name
    if hub.read(CLUSTER).get(key.ref) is not None:
        return Done()
    plan = _plan_claims(context, labels.SOURCE_CLUSTER, cell, f"cell {cell} has left")
    if plan.actions and await hub.get_uncached(CLUSTER, key.ref) is None:
        return await carry_out(context.planes, plan)
    return Done()


async def reconcile_namespace(context: Context, key: Key) -> Outcome:
    hub, name = context.planes.hub, key.ref.name
    # Any other namespace exists only on its cell.
    if not source_uid(name) or hub.read(NAMESPACE).get(key.ref) is not None:
        return Done()
    plan = _plan_claims(
        context, labels.INSTANCE_NAMESPACE, name, f"namespace {name} is gone from the hub"
    )
    if not plan.actions or hub.read(WORK).refs_indexed(WORKS_BY_NAMESPACE.name, name):
        return Done()
    if await hub.get_uncached(NAMESPACE, key.ref) is not None:
        return Done()
    if any(carries(work, name) for work in (await hub.client.list(WORK)).items):
        return Requeue(RECHECK_S)
    return await carry_out(context.planes, plan)


def _plan_claims(context: Context, label: str, value: str, reason: str) -> Plan:
    """Plan the release of the claims with the label, in all projects."""
    projects = [p for p in context.planes.engaged() if plane_role(p) == "project"]
    return Plan(
        tuple(
            action
            for project in projects
            for action in plan_left_claims(
                project,
                context.planes.require(project).read(CLAIM).with_label(label, value),
                reason,
            ).actions
        )
    )


def carries(work: Work, namespace: str) -> bool:
    """Return True if the Work carries the namespace or an object in it."""
    return namespace in _namespaces_of(work)


def _namespaces_of(work: Work) -> Iterator[str]:
    for manifest in work.spec.workload.manifests:
        metadata = manifest.get("metadata")
        is_namespace = manifest.get("kind") == NAMESPACE.kind
        field = "name" if is_namespace else "namespace"
        name = metadata.get(field) if isinstance(metadata, dict) else ""
        if isinstance(name, str) and name:
            yield name


WORKS_BY_NAMESPACE = Index(WORK, "carried-namespace", _namespaces_of)


def from_namespace(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(view.plane, Ref("", change.latest.metadata.name))


def from_work(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield from (Key(view.plane, Ref("", name)) for name in _namespaces_of(change.latest))


def from_claim_to_namespace(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map claims that are new to this process, because they may have been orphaned before."""
    claim = change.new
    if claim is None or (change.old is not None and not claim.is_terminating):
        return
    if namespace := claim.metadata.labels.get(labels.INSTANCE_NAMESPACE):
        yield Key(HUB, Ref("", namespace))


def from_cluster(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(view.plane, Ref("", change.latest.metadata.name))


def from_claim_to_cluster(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map claims that are new to this process, whose cell may have left before it started, and
    claims that are being deleted, which may wait for a cell that has left."""
    claim = change.new
    if claim is None or (change.old is not None and not claim.is_terminating):
        return
    if cell := claim.metadata.labels.get(labels.SOURCE_CLUSTER):
        yield Key(HUB, Ref("", cell))


CONTROLLERS = (
    Controller(
        name="left-claim",
        role="hub",
        reconcile=reconcile_cluster,
        edges=(watches(CLUSTER, from_cluster), watches(CLAIM, from_claim_to_cluster, on="project")),
        finalizers=(labels.CLAIM_FINALIZER,),
        modes=(FEDERATED,),
    ),
    Controller(
        name="orphaned-claim",
        role="hub",
        reconcile=reconcile_namespace,
        edges=(
            watches(NAMESPACE, from_namespace),
            watches(WORK, from_work),
            watches(CLAIM, from_claim_to_namespace, on="project"),
        ),
        indexes=(WORKS_BY_NAMESPACE,),
        finalizers=(labels.CLAIM_FINALIZER,),
        modes=(FEDERATED,),
    ),
)
