"""Deployments of a project are deleted only if the project has no access at that moment."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from datum_compute.api.conditions import Condition
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLAIM, CONSUMER, DEPLOYMENT, NAMESPACE, ORGANIZATION, PROJECT
from datum_compute.api.labels import UPSTREAM_CLUSTER
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    encode_cluster_label,
    project_plane,
)
from datum_compute.api.quota import SERVICE, SERVICE_NAME
from datum_compute.api.resourcemanager import (
    Organization,
    Project,
    ProjectOwner,
    ProjectSpec,
    ProjectStatus,
)
from datum_compute.api.services import (
    READY,
    ServiceConsumer,
    ServiceConsumerSpec,
    ServiceConsumerStatus,
    consumer_name,
)
from datum_compute.app.controllers import ManagerOptions, build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.client import Client
from datum_compute.controllers.context import Context
from datum_compute.controllers.platform import membership as projects
from datum_compute.planes.planes import project_label_scope
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PLANE = project_plane("gamma")
GAMMA = Project(
    metadata=ObjectMeta(name="gamma"),
    spec=ProjectSpec(owner_ref=ProjectOwner(kind="Organization", name="default")),
    status=ProjectStatus(
        conditions=[Condition(type=READY, status="True", reason="Ready", message="")]
    ),
)
WEB = msgspec.structs.replace(a_deployment(), metadata=ObjectMeta(name="web", namespace="default"))


def a_consumer(*, suspended: bool) -> ServiceConsumer:
    return ServiceConsumer(
        metadata=ObjectMeta(name=consumer_name(SERVICE_NAME, "gamma")),
        spec=ServiceConsumerSpec(
            service_ref=LocalReference(name=SERVICE),
            consumer_project_ref=LocalReference(name="gamma"),
            suspended=suspended,
        ),
        status=ServiceConsumerStatus(phase="Active"),
    )


def record_suspension(found: list[bool]) -> Controller[Context]:
    """Return a controller that records whether the project of each deployment is suspended."""

    async def reconcile(context: Context, key: Key) -> Outcome:
        assert context.membership is not None
        found.append(context.membership.is_suspended(key.plane))
        return Done()

    edges = (for_(DEPLOYMENT),)
    return Controller("recorder", "project", reconcile, edges, entitled_only=True)


@pytest.mark.parametrize("suspended", [False, True])
def test_a_project_is_suspended_according_to_the_live_consumer_not_a_stale_one(
    suspended: bool,
) -> None:
    """The watch of consumers sends no events, so the cache does not contain the new consumer."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        found: list[bool] = []
        platform, project = await planes.create(PLATFORM), await planes.create(PLANE)
        await platform.create(ORGANIZATION, Organization(metadata=ObjectMeta(name="default")))
        await platform.create(PROJECT, GAMMA, with_status=True)
        await project.create(NAMESPACE, a_namespace("default"))

        async def silence_consumers(request: Request) -> Response | None:
            if request.query.get("watch") and request.path.endswith(CONSUMER.plural):
                await asyncio.Event().wait()
            return None

        async def reach(plane: PlaneName) -> Client:
            return planes.client(plane)

        planes.intercept = silence_consumers
        environment = ProcessEnvironment(
            loop.time, lambda: "uid", lambda: "suffix", Random(1), loop.time
        )
        controllers = [projects.PROJECT_CONTROLLER, record_suspension(found)]
        manager = build_manager(controllers, {}, environment, options=ManagerOptions(reach=reach))
        manager.engage(PLATFORM, planes.client(PLATFORM))
        running = loop.create_task(manager.run())
        await asyncio.sleep(1)
        await platform.create(CONSUMER, a_consumer(suspended=suspended), with_status=True)
        await project.create(DEPLOYMENT, WEB)
        await asyncio.sleep(5)
        assert manager.is_entitled(PLANE)
        assert found[-1] == suspended
        running.cancel()
        await asyncio.wait([running])
        return [deployment.metadata.name for deployment in (await project.list(DEPLOYMENT)).items]

    assert with_planes(test) == ["web"], "a project without access keeps its deployments"


@pytest.mark.parametrize(
    ("controller", "plane"),
    [
        (projects.HUB_NAMESPACE_CONTROLLER, HUB),
        (projects.CELL_NAMESPACE_CONTROLLER, cell_plane("dfw")),
    ],
)
def test_a_cell_works_on_projects_while_they_have_a_namespace(
    controller: Controller[Context], plane: PlaneName
) -> None:
    scope = project_label_scope("dfw")
    no_project = {"metadata": {"labels": {UPSTREAM_CLUSTER: None}}}

    async def do_nothing(_context: Context, _key: Key) -> Outcome:
        return Done()

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        client = await planes.create(plane)
        edited_by_hand = encode_cluster_label("Not-A-Project")
        for number, label in enumerate([*[encode_cluster_label("gamma")] * 2, edited_by_hand]):
            namespace = a_namespace(f"ns-{number}", **{UPSTREAM_CLUSTER: label})
            await client.create(NAMESPACE, namespace)

        async def reach(project: PlaneName) -> Client:
            return await planes.create(project)

        environment = ProcessEnvironment(
            loop.time, lambda: "uid", lambda: "suffix", Random(1), loop.time
        )
        options = ManagerOptions(reach=reach, project_scope=scope)
        reads_claims = Controller(
            name="reads-claims", role="project", reconcile=do_nothing, edges=(for_(CLAIM),)
        )
        manager = build_manager([controller, reads_claims], {}, environment, options=options)
        manager.engage(plane, client)
        loop.create_task(manager.run())
        await asyncio.sleep(1)
        assert manager.engaged_planes() == sorted([plane, PLANE])
        project = manager.cached_client(PLANE)
        assert project is not None
        assert project.declare(CLAIM).labels == scope[CLAIM.resource]
        await client.patch(NAMESPACE, Ref("", "ns-0"), no_project)
        await asyncio.sleep(1)
        assert manager.cached_client(PLANE) is project, "another namespace is left"
        await client.patch(NAMESPACE, Ref("", "ns-1"), no_project)
        await asyncio.sleep(1)
        assert manager.engaged_planes() == [plane]

    with_planes(test)
