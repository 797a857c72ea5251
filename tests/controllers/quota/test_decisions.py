"""Quota of a project: claims are granted up to the limits of the grants."""

from __future__ import annotations

import asyncio

from datum_compute.api.conditions import is_true
from datum_compute.api.kinds import CLAIM, GRANT, NAMESPACE, REGISTRATION
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM, project_plane
from datum_compute.api.quota import INSTANCES, METRICS
from datum_compute.client.client import Client
from datum_compute.controllers.quota.decisions import (
    DECISION_CONTROLLERS,
    REGISTRATION_CONTROLLER,
)
from datum_compute.planes.catalogue import registration_of
from datum_compute.planning.quota.buckets import ACTIVE
from datum_compute.planning.quota.claims import is_granted
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.planning.quota.test_buckets import a_claim, a_grant
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("shop")
CONTROLLERS = (*DECISION_CONTROLLERS, REGISTRATION_CONTROLLER)


async def a_project_with_one_instance(planes: InProcessPlanes) -> Client:
    """Return a client of a project whose grant allows one instance."""
    platform, project = await planes.create(PLATFORM), await planes.create(PROJECT)
    for metric in METRICS:
        await platform.create(REGISTRATION, registration_of(metric))
    for name in ("default", "milo-system"):
        await project.create(NAMESPACE, a_namespace(name))
    await project.create(GRANT, as_new(a_grant(instances=1)))
    return project


async def granted(project: Client) -> list[str]:
    return [c.metadata.name for c in (await project.list(CLAIM)).items if is_granted(c)]


def test_a_denied_claim_is_granted_when_the_claim_that_used_the_quota_is_deleted() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project_with_one_instance(planes)
        async with running(CONTROLLERS, loop, planes, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            for name in ("first", "second"):
                await project.create(CLAIM, as_new(a_claim(name)))
                await asyncio.sleep(5)
            assert await granted(project) == ["first"]
            await project.delete(CLAIM, Ref("default", "first"))
            await asyncio.sleep(5)
            assert await granted(project) == ["second"]

    with_planes(test)


def test_the_next_registration_of_a_type_is_active_when_the_active_one_is_deleted() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[list[str]]:
        platform = await planes.create(PLATFORM)
        for name in ("a", "b"):
            registration = registration_of(INSTANCES)
            await platform.create(REGISTRATION, as_new(registration, name=name))
        seen = []
        async with running(CONTROLLERS, loop, planes, PLATFORM):
            for _ in range(2):
                await asyncio.sleep(5)
                found = (await platform.list(REGISTRATION)).items
                active = [r.metadata.name for r in found if is_true(r.status.conditions, ACTIVE)]
                seen.append(active)
                await platform.delete(REGISTRATION, Ref("", active[0]))
        return seen

    assert with_planes(test) == [["a"], ["b"]]
