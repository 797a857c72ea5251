"""The pods driver on a real API server, with a simulated kubelet."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.core import POD
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.app.pod_client import ClientPods
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.drivers.driver import Driver, MachineState, NotObserved, PermanentError
from datum_compute.drivers.pods.driver import PodsDriver
from testkit.conformance.driver import LIFE, SPEC, Settle
from testkit.processes.api_servers import RealPlane
from tests.drivers.pods.test_pod_spec import SERVER_SPEC
from tests.kubernetes.kubelet import Kubelet

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]


@dataclass(frozen=True, slots=True)
class Cell:
    client: Client
    driver: PodsDriver


@asynccontextmanager
async def running(plane: RealPlane) -> AsyncIterator[Cell]:
    """Run a cell without pods, with a driver that watches pods, and the kubelet."""
    connection = connection_of(load_kubeconfig([plane.kubeconfig]))
    async with Http1Transport(connection.server, ca_pem=connection.ca_pem) as transport:
        client = build_client(connection, transport)
        await _ensure_namespace(client, "ns")
        for pod in (await client.list(POD)).items:
            await client.delete(POD, Ref(pod.metadata.namespace, pod.metadata.name), grace_s=0)
        driver = PodsDriver(ClientPods(client), unix_s=time.time, elapsed_s=time.monotonic)
        kubelet = Kubelet(client, transport, connection.token, time.time)
        tasks = [asyncio.create_task(driver.run()), asyncio.create_task(kubelet.run())]
        try:
            yield Cell(client, driver)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
    await asyncio.sleep(0.2)  # the library closes connections asynchronously


async def _ensure_namespace(client: Client, name: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }
    await client.apply_plain(NAMESPACE, manifest, manager="test")


async def settled(cell: Cell, wanted: Callable[[MachineState | None], bool], machine: str) -> None:
    async with asyncio.timeout(30):
        while not (  # noqa: ASYNC110 - a real cluster
            not isinstance(state := await cell.driver.observe(machine), NotObserved)
            and wanted(state)
        ):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("check", LIFE, ids=lambda check: check.__name__)
async def test_conformance(
    check: Callable[[Driver, Settle], Awaitable[None]], plane: RealPlane
) -> None:
    async with running(plane) as cell:
        await check(cell.driver, lambda: asyncio.sleep(2))


async def test_a_pod_with_all_fields_satisfies_the_restricted_standard(
    plane: RealPlane,
) -> None:
    async with running(plane) as cell:
        await cell.driver.start("ns/whole/1", from_json(SERVER_SPEC, ServerSpec))
        await settled(cell, lambda s: s is not None and s.phase == "Running", "ns/whole/1")


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("fail.example/web:1", "ImageUnavailable"),
        ("config.example/web:1", "ConfigurationError"),
        ("crash.example/web:1", "InstanceCrashing"),
        ("oom.example/web:1", "InstanceCrashing"),
        ("nonode.example/web:1", "Unschedulable"),
    ],
)
async def test_the_cause_of_a_pod_that_does_not_run_is_reported(
    plane: RealPlane, image: str, reason: str
) -> None:
    async with running(plane) as cell:
        container = Container(name="app", image=image)
        spec = msgspec.structs.replace(SPEC, containers=[container])
        await cell.driver.start("ns/web-0/1", spec)
        await settled(cell, lambda s: s is not None and s.reason == reason, "ns/web-0/1")


async def test_a_pod_deleted_by_hand_is_absent_and_can_be_started_again(
    plane: RealPlane,
) -> None:
    async with running(plane) as cell:
        await cell.driver.start("ns/web-0/1", SPEC)
        await settled(cell, lambda s: s is not None and s.phase == "Running", "ns/web-0/1")
        (pod,) = (await cell.client.list(POD)).items
        await cell.client.delete(POD, Ref("ns", pod.metadata.name))
        await settled(cell, lambda s: s is None, "ns/web-0/1")
        await cell.driver.start("ns/web-0/1", SPEC)
        await settled(cell, lambda s: s is not None and s.phase == "Running", "ns/web-0/1")


async def test_a_pod_that_the_cluster_refuses_is_a_permanent_error_with_its_message(
    plane: RealPlane,
) -> None:
    async with running(plane) as cell:
        duplicate = [Container(name="app", image="web:1"), Container(name="app", image="web:1")]
        spec = msgspec.structs.replace(SPEC, containers=duplicate)
        with pytest.raises(PermanentError, match="Duplicate value"):
            await cell.driver.start("ns/web-0/1", spec)
