"""Controllers of Projects and Organizations: the plane of a project, an organization's namespace.

A deleted project is drained first: objects with finalizers of the platform are deleted, and the
controllers work on the project until they are gone. Then the plane is deleted, and finally the
project.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import ApiError
from datum_compute.api.kinds import NAMESPACE, ORGANIZATION, PROJECT
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import project_plane
from datum_compute.api.resourcemanager import Project
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.platform.projects import (
    organization_namespace,
    plan_cleanup,
    plan_failed,
    plan_organization,
    plan_project_metadata,
    plan_ready,
    plan_release,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, owns, watches
from datum_compute.runtime.informer import ObjectChange

BY_OWNER = "owner"


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    project = client.read(PROJECT).get(key.ref)
    if project is None:
        return Done()
    if project.is_terminating:
        return await _delete_plane(context, project)
    owner = client.read(ORGANIZATION).get(Ref("", project.spec.owner_ref.name))
    metadata = plan_project_metadata(project, owner)
    if metadata.actions:
        return await apply_plan(context.planes, metadata)
    return await _create_plane(context, project)


async def _create_plane(context: Context, project: Project) -> Outcome:
    lifecycle, metadata = context.plane_lifecycle, project.metadata
    assert lifecycle is not None, "projects are created by the process of the embedded server"
    owner = metadata.annotations.get(labels.CREATED_BY, "")
    try:
        await lifecycle.create(project_plane(metadata.name), owner)
    except ApiError as error:
        await apply_plan(context.planes, plan_failed(project, str(error), context.now()))
        raise
    return await apply_plan(context.planes, plan_ready(project, context.now()))


async def _delete_plane(context: Context, project: Project) -> Outcome:
    lifecycle, plane = context.plane_lifecycle, project_plane(project.metadata.name)
    assert lifecycle is not None, "projects are deleted by the process of the embedded server"
    if labels.PROJECT_FINALIZER not in project.metadata.finalizers:
        return Done()
    if left := await lifecycle.drain(plane):
        return await apply_plan(context.planes, plan_cleanup(project, left, context.now()))
    await lifecycle.delete(plane)
    return await apply_plan(context.planes, plan_release(project))


def map_organization(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a new organization to its projects, which may have been created first."""
    if change.old is not None:
        return
    for project in client.read_unsynced(PROJECT).list_by_index(
        BY_OWNER, change.latest.metadata.name
    ):
        yield Key(client.plane, ref_of(project))


PROJECT_CONTROLLER = Controller(
    name="project",
    role="platform",
    reconcile=reconcile,
    edges=(for_(PROJECT), watches(ORGANIZATION, map_organization)),
    indexes=(Index(PROJECT, BY_OWNER, lambda project: (project.spec.owner_ref.name,)),),
    finalizers=(labels.PROJECT_FINALIZER,),
    workers=4,
)


# --- organizations


async def reconcile_organization(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    organization = client.read(ORGANIZATION).get(key.ref)
    if organization is None:
        return Done()
    namespace = client.read(NAMESPACE).get(Ref("", organization_namespace(key.ref.name)))
    plan = plan_organization(organization, namespace, context.now())
    return await apply_plan(context.planes, plan)


ORGANIZATION_CONTROLLER = Controller(
    name="organization",
    role="platform",
    reconcile=reconcile_organization,
    edges=(for_(ORGANIZATION), owns(NAMESPACE)),
    workers=1,
)
