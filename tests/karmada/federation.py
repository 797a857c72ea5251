"""A hub and its cells, for tests that pass on Karmada and on the embedded hub.

A test acts as the federator (it executes the plans of the same planners on the hub) and as the
controllers of a cell. Only the controllers of the embedded hub run, so that no other controller
interferes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.core import Namespace
from datum_compute.api.errors import NotFound
from datum_compute.api.karmada import Work
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER,
    CLUSTER_POLICY,
    DEPLOYMENT,
    NAMESPACE,
    POLICY,
    WORK,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import (
    HUB,
    cell_plane,
    execution_namespace,
    federation_namespace,
    project_plane,
)
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.controllers import registry
from datum_compute.planning.federation.deployment import HubState, plan_federation
from datum_compute.planning.federation.hub_namespaces import plan_policies
from datum_compute.planning.karmada.bindings import binding_name
from datum_compute.planning.plan import Create, Patch, Plan
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop, run_virtual
from testkit.sim.single_host import SingleHost, single_host

T = TypeVar("T", bound=ApiObject)
Holds = Callable[[], Awaitable[bool]]

# A project without controllers: only the test federates for it.
PROJECT = project_plane("story")
NOW = "2026-01-01T00:00:00Z"
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Federation:
    """The hub and cells of one test.

    ``near`` and ``far`` are cells, each the only one of its city at first. ``hub_namespace`` is
    the copy of the project namespace of the test.
    """

    hub: Client
    cells: Mapping[str, Client]
    near: str
    far: str
    story: str
    is_karmada: bool
    unreachable: Callable[[str], None]
    heal: Callable[[str], None]
    join: Callable[[str], None]

    @property
    def namespace(self) -> Namespace:
        uid = hashlib.sha256(self.story.encode()).hexdigest()[:12]
        return Namespace(metadata=ObjectMeta(name="default", uid=uid))

    @property
    def hub_namespace(self) -> str:
        return federation_namespace(self.namespace.metadata.uid)

    def ref(self, name: str = "web") -> Ref:
        return Ref(self.hub_namespace, name)

    # --- actions of the federator

    async def federate(
        self, name: str = "web", *, image: str = "web:1", generation: int = 1, city: str = ""
    ) -> WorkloadDeployment:
        """Write the project's deployment at that generation to the hub, with its policies."""
        deployment = a_deployment(image, name=name, city=city or self.near.upper())
        recorded = {labels.FEDERATION_NAMESPACE: self.hub_namespace}
        metadata = replace(
            deployment.metadata,
            namespace="default",
            generation=generation,
            annotations={**deployment.metadata.annotations, **recorded},
            finalizers=[labels.FEDERATOR_FINALIZER],
        )
        deployment = replace(deployment, metadata=metadata)
        state = HubState(
            namespace=await found(self.hub, NAMESPACE, Ref("", self.hub_namespace)),
            deployment=await found(self.hub, DEPLOYMENT, self.ref(name)),
            binding=None,
        )
        await self._execute(plan_federation(PROJECT, deployment, self.namespace, state, NOW))
        await self.write_policies()
        return deployment

    async def write_policies(self) -> None:
        """Write policies as the policy controller does, but delete none."""
        namespace = await self.hub.get(NAMESPACE, Ref("", self.hub_namespace))
        plan = plan_policies(
            namespace,
            (await self.hub.list(DEPLOYMENT, self.hub_namespace)).items,
            (await self.hub.list(POLICY, self.hub_namespace)).items,
            await found(self.hub, CLUSTER_POLICY, Ref("", self.hub_namespace)),
        )
        await self._execute(plan)

    async def _execute(self, plan: Plan) -> None:
        for action in plan.actions:
            match action:
                case Create(plane=plane) if plane == HUB:
                    await self.hub.create(action.kind, action.object)
                case Patch(plane=plane) if plane == HUB:
                    await self.hub.patch(action.kind, action.ref, action.patch)

    # --- reads

    async def copy(self, cell: str, name: str = "web") -> WorkloadDeployment | None:
        return await found(self.cells[cell], DEPLOYMENT, self.ref(name))

    async def works(self, cell: str, name: str = "web") -> list[Work]:
        listed = (await self.hub.list(WORK, execution_namespace(cell))).items
        return [work for work in listed if _is_for(work, self.ref(name))]

    async def binding(self, name: str = "web") -> JsonObject | None:
        ref = self.ref(binding_name(DEPLOYMENT, name))
        try:
            return await self.hub.get_plain(BINDING, ref)
        except NotFound:
            return None

    async def bound_to(self, name: str = "web") -> list[str]:
        binding = await self.binding(name) or {}
        return sorted(c["name"] for c in binding.get("spec", {}).get("clusters", []))

    async def ready(self, cell: str) -> Condition | None:
        cluster = await self.hub.get(CLUSTER, Ref("", cell))
        return find_condition(cluster.status.conditions, "Ready")

    # --- waiting

    async def until(self, holds: Holds, what: str, within_s: float = TIMEOUT_S) -> None:
        deadline_s = asyncio.get_running_loop().time() + within_s
        while not await holds():
            assert asyncio.get_running_loop().time() < deadline_s, (
                f"not within {within_s} s: {what}"
            )
            await asyncio.sleep(0.1)

    async def stays(self, holds: Holds, what: str, for_s: float = 3.0) -> None:
        deadline_s = asyncio.get_running_loop().time() + for_s
        while asyncio.get_running_loop().time() < deadline_s:
            assert await holds(), what
            await asyncio.sleep(0.2)

    async def until_copied(self, cell: str, image: str = "web:1", name: str = "web") -> None:
        async def holds() -> bool:
            copy = await self.copy(cell, name)
            return copy is not None and image_of(copy) == image

        await self.until(holds, f"{name} with {image} is on {cell}")

    async def until_gone(self, cell: str, name: str = "web") -> None:
        async def holds() -> bool:
            return await self.copy(cell, name) is None

        await self.until(holds, f"{name} is gone from {cell}")

    async def until_ready_is(self, cell: str, status: str) -> None:
        async def holds() -> bool:
            ready = await self.ready(cell)
            return ready is not None and ready.status == status

        await self.until(holds, f"the hub reports Ready={status} for {cell}")


Story = Callable[[Federation], Awaitable[None]]


def image_of(deployment: WorkloadDeployment) -> str:
    return deployment.spec.template.spec.runtime.sandbox.containers[0].image


async def found(client: Client, kind: KindInfo[T], ref: Ref) -> T | None:
    try:
        return await client.get(kind, ref)
    except NotFound:
        return None


def _is_for(work: Work, ref: Ref) -> bool:
    manifest = work.spec.workload.manifests[0]
    metadata = manifest["metadata"]
    named = (metadata.get("namespace", ""), metadata["name"])
    return manifest["kind"] == DEPLOYMENT.kind and named == (ref.namespace, ref.name)


def run_embedded(story: Story, name: str) -> None:
    """Run the test in virtual time, only with the controllers of the hub and of Kubernetes."""

    async def main(loop: VirtualLoop) -> None:
        controllers = (*registry.HUB, *registry.CLUSTER)
        cells = {"dfw": cell_plane("dfw"), "ord": cell_plane("ord")}
        host: SingleHost = single_host(
            loop, projects=(), cells=tuple(cells.values()), controllers=controllers
        )
        host.host.start()
        federation = Federation(
            hub=host.operator(HUB),
            cells={cell: host.operator(plane) for cell, plane in cells.items()},
            near="dfw",
            far="ord",
            story=name,
            is_karmada=False,
            unreachable=lambda cell: host.silent.add(cells[cell]),
            heal=lambda cell: host.silent.discard(cells[cell]),
            join=lambda _cell: None,  # each test has its own hub
        )
        await asyncio.sleep(5)  # until it has booted
        for cell in cells:  # cells that joined have this finalizer
            held = {"metadata": {"finalizers": [labels.CLUSTER_FINALIZER]}}
            await federation.hub.patch(CLUSTER, Ref("", cell), held)
        await story(federation)

    run_virtual(Random(1), main)


def run_real(
    story: Story,
    federation: Callable[[Mapping[str, Client]], Federation],
    kubeconfigs: Mapping[str, tuple[Path, str]],
) -> None:
    """Run the test on real servers; ``kubeconfigs`` has file and context of each plane."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            clients: dict[str, Client] = {}
            for plane, (file, context) in kubeconfigs.items():
                connection = connection_of(load_kubeconfig([file]), context)
                transport = Http1Transport(connection.server, ca_pem=connection.ca_pem)
                await stack.enter_async_context(transport)
                clients[plane] = build_client(connection, transport)
            await story(federation(clients))

    asyncio.run(main())
