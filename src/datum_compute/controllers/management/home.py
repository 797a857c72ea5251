"""Hub namespace ``ns-<uid>`` -> gone, after the project namespace whose home it is.

It goes with its policy, and by that from every cell. Never by mistake, and never too early:
- The source must be proven gone: no namespace of the project has that uid, asked of the project
  itself. A uid never comes back, so nothing can be on its way to a home whose source is gone.
- It must be empty, on the hub and, by the Works that stand for what cells have, on every cell.
A project that is not engaged proves nothing, and its homes stay, unless they are marked as what a
removed project has left behind.

While the source exists, the controller restores edited labels that name it. Cells find the
project of an instance by these labels, also after the last deployment was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.identity import decoded_project, federation_namespace, source_uid
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER_POLICY,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    WORK,
)
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB, PlaneName, plane_role
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.homes import Home, plan_home, plan_identity
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

RECHECK_S = 60.0
_INSIDE: tuple[KindInfo[Any], ...] = (DEPLOYMENT, INSTANCE, BINDING)


async def reconcile(context: Context, key: Key) -> Outcome:
    hub, name = context.planes.hub, key.ref.name
    home = Home(hub.read(NAMESPACE).get(key.ref), hub.read(CLUSTER_POLICY).get(key.ref))
    removed = labels.PROJECT_REMOVED in home.identity
    if not source_uid(name):
        return Done()
    project = _project_of(context, home)
    # Of a project that is removed, caches of a manager elsewhere may still have the last they saw.
    if not removed:
        if _names_its_source(project, home, name):
            return Done()
        if (source := _find_source(context, name)) is not None:
            return await carry_out(context.planes, plan_identity(home, *source))
        if project is None:
            return Done()
    if not _is_empty(hub, name):
        return Requeue(RECHECK_S)
    if project is not None and await _has_source(project, source_uid(name), removed=removed):
        return Requeue(RECHECK_S)
    if not await _is_proven_empty(hub, name):
        return Requeue(RECHECK_S)
    return await carry_out(context.planes, plan_home(home))


def _project_of(context: Context, home: Home) -> CachedClient | None:
    named = decoded_project(home.identity.get(labels.UPSTREAM_CLUSTER, ""))
    return context.planes.project(named) if named else None


def _names_its_source(project: CachedClient | None, home: Home, name: str) -> bool:
    """The usual case, which costs one look."""
    if project is None:
        return False
    named = Ref("", home.identity.get(labels.UPSTREAM_NAMESPACE, ""))
    source = project.read(NAMESPACE).get(named)
    return source is not None and source.metadata.uid == source_uid(name)


def _find_source(context: Context, name: str) -> tuple[PlaneName, Namespace] | None:
    """Find the source by its uid in any project, because the labels may have been edited."""
    uid = source_uid(name)
    projects = (p for p in context.planes.engaged() if plane_role(p) == "project")
    return next(
        (
            (project, namespace)
            for project in projects
            for namespace in context.planes.require(project).read(NAMESPACE).all()
            if namespace.metadata.uid == uid
        ),
        None,
    )


def _is_empty(hub: CachedClient, name: str) -> bool:
    if any(hub.read(kind).in_namespace(name) for kind in _INSIDE):
        return False
    return all(name not in _homes_of(work) for work in hub.read(WORK).all())


async def _has_source(project: CachedClient, uid: str, *, removed: bool) -> bool:
    try:
        listed = await project.client.list(NAMESPACE)
    except (NotFound, Forbidden):
        if not removed:
            raise
        return False  # there is no such plane any more, nor anybody who may do anything on it
    return any(namespace.metadata.uid == uid for namespace in listed.items)


async def _is_proven_empty(hub: CachedClient, name: str) -> bool:
    for kind in _INSIDE:
        if (await hub.client.list(kind, namespace=name)).items:
            return False
    return True


def _homes_of(work: Any) -> list[str]:
    """Where the copies of what the Work carries lie."""
    found = [m.get("metadata", {}) for m in work.spec.workload.manifests if isinstance(m, dict)]
    return [m["namespace"] for m in found if isinstance(m, dict) and m.get("namespace")]


def from_source(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """A project namespace was created, is seen for the first time, or is gone."""
    if change.new is None or change.old is None:
        yield Key(HUB, Ref("", federation_namespace(change.latest.metadata.uid)))


def from_content(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(view.plane, Ref("", change.latest.metadata.namespace))


def from_work(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        for name in _homes_of(change.latest):
            yield Key(view.plane, Ref("", name))


def from_policy(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(view.plane, Ref("", change.latest.metadata.name))


CONTROLLER = Controller(
    name="home",
    role="hub",
    reconcile=reconcile,
    edges=(
        for_(NAMESPACE),
        watches(CLUSTER_POLICY, from_policy),
        watches(DEPLOYMENT, from_content),
        watches(WORK, from_work),
        reads(INSTANCE),
        reads(BINDING),
        watches(NAMESPACE, from_source, on="project"),
    ),
)
