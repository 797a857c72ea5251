"""The projects that a platform has from its first moment, entitled to compute.

They are founded once: a record on the platform says so, and a project that somebody deletes later
does not come back with the next start. Planes of an older release, which knew no projects, get
theirs. What is written is planned by the same functions that the controllers follow, so those find
nothing to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from datum_compute.api.core import ConfigMap
from datum_compute.api.errors import AlreadyExists, NotFound
from datum_compute.api.kinds import (
    CONFIG_MAP,
    CONSUMER,
    ENTITLEMENT,
    GRANT,
    LOCATION,
    LOCATION_BINDING,
    NAMESPACE,
    ORGANIZATION,
    PROJECT,
    REGISTRATION,
    SERVICE,
    SERVICE_CONFIGURATION,
)
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import PLATFORM, PlaneName, member_name
from datum_compute.api.quota import SERVICE as COMPUTE
from datum_compute.api.quota import SERVICE_NAME
from datum_compute.api.resourcemanager import Organization, Project, ProjectOwner, ProjectSpec
from datum_compute.api.services import ServiceEntitlement, ServiceEntitlementSpec, consumer_name
from datum_compute.client.client import Client
from datum_compute.controllers.effects import carry_out
from datum_compute.planes.lifecycle import PlaneLifecycle
from datum_compute.planes.planes import Planes
from datum_compute.planning.plan import Plan, Wait
from datum_compute.planning.platform.entitlements import EntitlementInputs, plan_entitlement
from datum_compute.planning.platform.projects import (
    organization_namespace,
    plan_organization,
    plan_project_metadata,
    plan_ready,
)
from datum_compute.planning.platform.services import plan_configuration, plan_consumer, plan_service
from datum_compute.runtime.cached_client import CachedClient

ORGANIZATION_NAME = "default"
_RECORD = Ref("kube-system", "founded-projects")
# Each pass takes a project one step further; there are five of them.
_PASSES = 12

_Plans = Sequence[Plan]
_Step = Callable[[Client, Client, PlaneName, str], Awaitable[_Plans]]


class DefaultProjects:
    """``client`` may do everything on every plane."""

    def __init__(
        self,
        client: Callable[[PlaneName], Client],
        maker: PlaneLifecycle,
        now: str,
        random: Random,
    ) -> None:
        self._client = client
        self._maker = maker
        self._now = now
        self._planes = Planes(lambda plane: CachedClient(plane, client(plane), random))

    async def found(self, planes: Sequence[PlaneName]) -> None:
        """Those that have not been founded yet."""
        record = await self._record()
        missing = [plane for plane in planes if member_name(plane) not in record]
        if not missing:
            return
        await self._ensure(PLATFORM, ORGANIZATION, _organization())
        for plane in missing:
            await self._ensure(PLATFORM, PROJECT, _project(member_name(plane)))
            await self._maker.create(plane, "")
            await self._ensure(plane, ENTITLEMENT, _entitlement())
        for plane in missing:
            await self._settle(plane)
        founded = {"data": {member_name(plane): "true" for plane in missing}}
        await self._client(PLATFORM).patch(CONFIG_MAP, _RECORD, founded)

    async def _record(self) -> dict[str, str]:
        """Mostly it is there: this is read at every start."""
        platform = self._client(PLATFORM)
        with suppress(NotFound):
            return (await platform.get(CONFIG_MAP, _RECORD)).data
        metadata = ObjectMeta(name=_RECORD.name, namespace=_RECORD.namespace)
        return (await platform.create(CONFIG_MAP, ConfigMap(metadata=metadata))).data

    async def _ensure(self, plane: PlaneName, kind: KindInfo[Any], obj: ApiObject) -> None:
        with suppress(AlreadyExists):
            await self._client(plane).create(kind, obj)

    async def _settle(self, plane: PlaneName) -> None:
        """Plan and carry out until nothing is left to do."""
        for _ in range(_PASSES):
            if not [done for step in _STEPS if (done := await self._done(step, plane))]:
                return

    async def _done(self, step: _Step, plane: PlaneName) -> bool:
        """Whether the step had anything to do."""
        done = False
        for plan in await step(self._client(PLATFORM), self._client(plane), plane, self._now):
            acts = [action for action in plan.actions if not isinstance(action, Wait)]
            done = done or bool(acts)
            await carry_out(self._planes, plan)
        return done


# --- the steps: what the controllers of the same names plan


async def _organizations(platform: Client, _project: Client, _plane: PlaneName, now: str) -> _Plans:
    found = (await platform.list(ORGANIZATION)).items
    spaces = {space.metadata.name: space for space in (await platform.list(NAMESPACE)).items}
    named = [(one, spaces.get(organization_namespace(one.metadata.name))) for one in found]
    return [plan_organization(one, space, now) for one, space in named]


async def _projects(platform: Client, _project: Client, plane: PlaneName, now: str) -> _Plans:
    project = await platform.get(PROJECT, Ref("", member_name(plane)))
    owner = await platform.get(ORGANIZATION, Ref("", project.spec.owner_ref.name))
    guard = plan_project_metadata(project, owner)
    return [guard if guard.actions else plan_ready(project, now)]


async def _services(platform: Client, _project: Client, _plane: PlaneName, now: str) -> _Plans:
    services = (await platform.list(SERVICE)).items
    by_name = {service.metadata.name: service for service in services}
    registered = (await platform.list(REGISTRATION)).items
    return [
        *(plan_service(service, now) for service in services),
        *(
            plan_configuration(one, by_name.get(one.spec.service_ref.name), registered, now)
            for one in (await platform.list(SERVICE_CONFIGURATION)).items
        ),
    ]


async def _consumers(platform: Client, _project: Client, _plane: PlaneName, now: str) -> _Plans:
    services = {one.metadata.name: one for one in (await platform.list(SERVICE)).items}
    consumers = (await platform.list(CONSUMER)).items
    return [plan_consumer(one, services.get(one.spec.service_ref.name), now) for one in consumers]


async def _entitlements(platform: Client, project: Client, plane: PlaneName, now: str) -> _Plans:
    name = Ref("", COMPUTE)
    consumer = consumer_name(SERVICE_NAME, member_name(plane))
    consumers = {one.metadata.name: one for one in (await platform.list(CONSUMER)).items}
    requested = EntitlementInputs(
        plane=plane,
        entitlement=await project.get(ENTITLEMENT, name),
        service=await platform.get(SERVICE, name),
        configuration=await platform.get(SERVICE_CONFIGURATION, name),
        consumer=consumers.get(consumer),
        locations=(await platform.list(LOCATION)).items,
        grants=(await project.list(GRANT)).items,
        bindings=(await project.list(LOCATION_BINDING)).items,
        entitlements=(await project.list(ENTITLEMENT)).items,
    )
    return [plan_entitlement(requested, now)]


_STEPS: tuple[_Step, ...] = (_organizations, _projects, _services, _consumers, _entitlements)


def _organization() -> Organization:
    return Organization(metadata=ObjectMeta(name=ORGANIZATION_NAME))


def _project(name: str) -> Project:
    owner = ProjectOwner(kind="Organization", name=ORGANIZATION_NAME)
    return Project(metadata=ObjectMeta(name=name), spec=ProjectSpec(owner_ref=owner))


def _entitlement() -> ServiceEntitlement:
    spec = ServiceEntitlementSpec(service_ref=LocalReference(name=COMPUTE))
    return ServiceEntitlement(metadata=ObjectMeta(name=COMPUTE), spec=spec)
