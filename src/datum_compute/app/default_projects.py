"""Create the default projects of a platform, each with an entitlement to compute.

Each default project is created once. A ConfigMap on the platform records it, so that a project that
a user deleted later does not return with the next start. Planes of a release without projects
receive theirs at the first start. The steps use the planners of the controllers, so the first
reconcile of each controller is a no-op.
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
from datum_compute.controllers.effects import apply_plan
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
# A round runs all planners once. Five rounds settle a new project.
_ROUNDS_MAX = 12

_Plans = Sequence[Plan]
# A planner receives clients of the platform and of the project, the project, and the time.
_Planner = Callable[[Client, Client, PlaneName, str], Awaitable[_Plans]]


class DefaultProjects:
    """Creates the default projects. ``client`` returns clients with all permissions."""

    def __init__(
        self,
        client: Callable[[PlaneName], Client],
        lifecycle: PlaneLifecycle,
        now: str,
        random: Random,
    ) -> None:
        self._client = client
        self._lifecycle = lifecycle
        self._now = now
        self._planes = Planes(lambda plane: CachedClient(plane, client(plane), random))

    async def create(self, planes: Sequence[PlaneName]) -> None:
        """Create the projects that the record does not contain, and add them to it."""
        record = await self._read_record()
        missing = [plane for plane in planes if member_name(plane) not in record]
        if not missing:
            return
        await self._create_unless_exists(PLATFORM, ORGANIZATION, _new_organization())
        for plane in missing:
            await self._create_unless_exists(PLATFORM, PROJECT, _new_project(member_name(plane)))
            await self._lifecycle.create(plane, "")
            await self._create_unless_exists(plane, ENTITLEMENT, _new_entitlement())
        for plane in missing:
            await self._reconcile(plane)
        created = {"data": {member_name(plane): "true" for plane in missing}}
        await self._client(PLATFORM).patch(CONFIG_MAP, _RECORD, created)

    async def _read_record(self) -> dict[str, str]:
        """Return the content of the record. Create it at the first start."""
        platform = self._client(PLATFORM)
        with suppress(NotFound):
            return (await platform.get(CONFIG_MAP, _RECORD)).data
        metadata = ObjectMeta(name=_RECORD.name, namespace=_RECORD.namespace)
        return (await platform.create(CONFIG_MAP, ConfigMap(metadata=metadata))).data

    async def _create_unless_exists(
        self, plane: PlaneName, kind: KindInfo[Any], obj: ApiObject
    ) -> None:
        with suppress(AlreadyExists):
            await self._client(plane).create(kind, obj)

    async def _reconcile(self, plane: PlaneName) -> None:
        """Run all planners until none of them returns an action."""
        for _ in range(_ROUNDS_MAX):
            has_acted = False
            for planner in _PLANNERS:
                has_acted = await self._run_planner(planner, plane) or has_acted
            if not has_acted:
                return

    async def _run_planner(self, planner: _Planner, plane: PlaneName) -> bool:
        """Carry out the plans of a planner. Return True if they had any action."""
        has_acted = False
        for plan in await planner(self._client(PLATFORM), self._client(plane), plane, self._now):
            has_acted = has_acted or any(not isinstance(a, Wait) for a in plan.actions)
            await apply_plan(self._planes, plan)
        return has_acted


# --- Planners: each reads the objects that one controller observes, and calls its plan functions


async def _plan_organizations(
    platform: Client, _project: Client, _plane: PlaneName, now: str
) -> _Plans:
    namespaces = {one.metadata.name: one for one in (await platform.list(NAMESPACE)).items}
    return [
        plan_organization(one, namespaces.get(organization_namespace(one.metadata.name)), now)
        for one in (await platform.list(ORGANIZATION)).items
    ]


async def _plan_project(platform: Client, _project: Client, plane: PlaneName, now: str) -> _Plans:
    project = await platform.get(PROJECT, Ref("", member_name(plane)))
    owner = await platform.get(ORGANIZATION, Ref("", project.spec.owner_ref.name))
    plan = plan_project_metadata(project, owner)
    return [plan if plan.actions else plan_ready(project, now)]


async def _plan_services(platform: Client, _project: Client, _plane: PlaneName, now: str) -> _Plans:
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


async def _plan_consumers(
    platform: Client, _project: Client, _plane: PlaneName, now: str
) -> _Plans:
    services = {one.metadata.name: one for one in (await platform.list(SERVICE)).items}
    consumers = (await platform.list(CONSUMER)).items
    return [plan_consumer(one, services.get(one.spec.service_ref.name), now) for one in consumers]


async def _plan_entitlement(
    platform: Client, project: Client, plane: PlaneName, now: str
) -> _Plans:
    name = Ref("", COMPUTE)
    consumer = consumer_name(SERVICE_NAME, member_name(plane))
    consumers = {one.metadata.name: one for one in (await platform.list(CONSUMER)).items}
    inputs = EntitlementInputs(
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
    return [plan_entitlement(inputs, now)]


_PLANNERS: tuple[_Planner, ...] = (
    _plan_organizations,
    _plan_project,
    _plan_services,
    _plan_consumers,
    _plan_entitlement,
)


def _new_organization() -> Organization:
    return Organization(metadata=ObjectMeta(name=ORGANIZATION_NAME))


def _new_project(name: str) -> Project:
    owner = ProjectOwner(kind="Organization", name=ORGANIZATION_NAME)
    return Project(metadata=ObjectMeta(name=name), spec=ProjectSpec(owner_ref=owner))


def _new_entitlement() -> ServiceEntitlement:
    spec = ServiceEntitlementSpec(service_ref=LocalReference(name=COMPUTE))
    return ServiceEntitlement(metadata=ObjectMeta(name=COMPUTE), spec=spec)
