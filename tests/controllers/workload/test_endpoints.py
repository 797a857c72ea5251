"""The publishing controller forwards connections to the instances that accept them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from datum_compute.api.compute.instance import (
    Container,
    ContainerPort,
    Instance,
    InterfaceAddress,
    NetworkInterfaceStatus,
)
from datum_compute.api.compute.scale_to_zero import ScaleToZero
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, NAMESPACE, SERVER
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend, SleepPolicy
from datum_compute.app.controllers import ManagerOptions
from datum_compute.controllers.workload.endpoints import CONTROLLER, WAKE_S, sleep_policy
from testkit.builders import a_deployment, a_server, an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, is_reconciled, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL = cell_plane("dfw")
DEPLOYMENT_REF = Ref("default", "web-dfw")
CONTAINERS = [
    Container(name="app", image="web:1", ports=[ContainerPort(name="http", port=8080)]),
]


class RecordedTraffic:
    """Records what is published; the port of a name is always 40000."""

    def __init__(self) -> None:
        self.published: dict[tuple[str, str], list[Backend]] = {}
        self.refused: set[str] = set()

    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        self.published[(owner, name)] = list(backends)
        return "127.0.0.1", last_port or 40000

    def refuse(self, owner: str, *, refused: bool) -> None:
        if refused:
            self.refused.add(owner)
        else:
            self.refused.discard(owner)

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        for published in list(self.published):
            if published[0] == owner and published[1] not in kept:
                del self.published[published]

    def addresses(self) -> dict[str, list[str]]:
        return {
            name: [f"{b.address}:{b.port}" for b in backends]
            for (_, name), backends in self.published.items()
        }


def with_address(instance: Instance, address: str) -> Instance:
    allocated = InterfaceAddress(
        family="IPv4", address=address, prefix_length=20, gateway="10.128.16.1"
    )
    interfaces = [NetworkInterfaceStatus(addresses=[allocated])]
    return replace(instance, status=replace(instance.status, network_interfaces=interfaces))


def test_a_port_reaches_the_ready_instances_until_the_deployment_is_deleted() -> None:
    """The first of two instances is ready. The port of the deployment is in its status."""
    traffic = RecordedTraffic()

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        cell = await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        deployment = a_deployment(finalizers=())
        sandbox = replace(deployment.spec.template.spec.runtime.sandbox, containers=CONTAINERS)
        runtime = replace(deployment.spec.template.spec.runtime, sandbox=sandbox)
        template = replace(deployment.spec.template.spec, runtime=runtime)
        spec = replace(deployment.spec, template=replace(deployment.spec.template, spec=template))
        await cell.create(DEPLOYMENT, as_new(replace(deployment, spec=spec)))
        for number, is_ready in enumerate((True, False)):
            instance = with_address(an_instance(number, ready=is_ready), f"10.128.16.{number + 2}")
            await cell.create(INSTANCE, as_new(instance), with_status=True)
            server = a_server("Running")
            server = replace(server, spec=replace(server.spec, containers=CONTAINERS))
            await cell.create(SERVER, as_new(server, name=instance.metadata.name))
        options = ManagerOptions(traffic=traffic)
        async with running(CONTROLLER, loop, planes, CELL, options=options):
            await asyncio.sleep(5)
            assert traffic.addresses() == {"http": ["10.128.16.2:8080"]}
            (endpoint,) = (await cell.get(DEPLOYMENT, DEPLOYMENT_REF)).status.endpoints
            assert endpoint.url == "http://127.0.0.1:40000"
            await cell.delete(DEPLOYMENT, DEPLOYMENT_REF)
            await asyncio.sleep(5)
            assert traffic.addresses() == {}

    with_planes(test)


def test_a_connection_to_a_stopped_machine_waits_for_the_grace_period_of_the_stop_too() -> None:
    spec = replace(a_server().spec, termination_grace_period_seconds=7)
    assert sleep_policy(spec) is None
    stopping = replace(spec, scale_to_zero=ScaleToZero(idle_after="5m", mode="stop"))
    assert sleep_policy(stopping) == SleepPolicy(300.0, "stop", WAKE_S + 7)
    pausing = replace(spec, scale_to_zero=ScaleToZero(idle_after="5m", mode="pause"))
    assert sleep_policy(pausing) == SleepPolicy(300.0, "pause", WAKE_S)


def test_the_published_ports_are_updated_when_a_crashed_machine_accepts_connections() -> None:
    crashed = a_server("Failed")
    recovering = replace(crashed, status=replace(crashed.status, recovering=True))
    assert is_reconciled(CONTROLLER, SERVER, crashed, recovering)
    assert is_reconciled(CONTROLLER, SERVER, recovering, crashed)
    assert is_reconciled(CONTROLLER, SERVER, crashed, a_server("Running"))
    assert not is_reconciled(CONTROLLER, SERVER, recovering, a_server("Running"))
    assert not is_reconciled(CONTROLLER, SERVER, a_server("Pending"), crashed)
