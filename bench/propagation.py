"""Propagation from the hub to a cell: the embedded hub, and a Karmada of the same run.

Both get the same objects, one deployment after the other: the hub namespace, the policy of the city
and a WorkloadDeployment. The time runs from the write of the deployment until the cell has a copy.
The embedded hub also runs all other controllers of the platform; the cell of Karmada is a
kube-apiserver. Karmada is measured where it is built (``make kube-assets``).
"""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from bench.measurement import RESULTS, Measurement, p50_ms, p99_ms
from bench.processes import platform
from datum_compute.api import labels
from datum_compute.api.core import Namespace
from datum_compute.api.errors import AlreadyExists, NotFound
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import federation_namespace, project_plane
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.planning.federation.deployment import HubState, plan_federation
from datum_compute.planning.federation.hub_namespaces import plan_policies
from datum_compute.planning.plan import Create, Plan
from hack.karmada_assets import found_karmada, karmada_module
from hack.kube_assets import found_assets
from testkit.builders import a_deployment
from testkit.processes.api_servers import RealServers
from testkit.processes.karmada import DEPLOY, Karmada

PROJECT, CELL = project_plane("bench"), "dfw"
OWN = Namespace(metadata=ObjectMeta(name="default", uid="b" * 12))
TARGET = federation_namespace(OWN.metadata.uid)
NOW = "2026-01-01T00:00:00Z"
POLL_S = 0.003
TIMEOUT_S = 60.0

Kubeconfigs = tuple[tuple[Path, str], tuple[Path, str]]  # file and context of hub and cell


def measure(deployments: int) -> list[Measurement]:
    RESULTS.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=RESULTS) as folder:
        ours = _on_embedded_hub(Path(folder) / "ours", deployments)
        theirs = _on_karmada(Path(folder) / "karmada", deployments)
    found, peer = [], "hub to cell, Karmada"
    if theirs:
        found += [
            Measurement(f"{peer}, p50", p50_ms(theirs), "ms"),
            Measurement(f"{peer}, p99", p99_ms(theirs), "ms"),
        ]
    return [
        *found,
        Measurement("hub to cell, p50", p50_ms(ours), "ms", f"{peer}, p50" if theirs else ""),
        Measurement("hub to cell, p99", p99_ms(ours), "ms", f"{peer}, p99" if theirs else ""),
    ]


def _on_embedded_hub(state: Path, deployments: int) -> list[float]:
    with platform(state, "hub", f"--cells={CELL}"):
        file = state / "kubeconfig"
        return asyncio.run(_propagate(((file, "hub"), (file, f"cell/{CELL}")), deployments))


def _on_karmada(folder: Path, deployments: int) -> list[float]:
    """Return nothing if the servers are not built."""
    assets, programs = found_assets(os.environ), found_karmada(os.environ)
    if assets is None or programs is None:
        return []
    folder.mkdir()
    servers = RealServers(assets, folder, syncs_writes=True)
    karmada: Karmada | None = None
    try:
        servers.start_etcd()
        hub, cell = servers.start_planes("hub", CELL)
        cell.admin("apply", "--server-side", "-f", str(DEPLOY / "crds"))
        cell.admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        cell.admin("apply", "-f", str(DEPLOY / "federation" / "cell" / "accounts.yaml"))
        karmada = Karmada(programs, karmada_module(os.environ), hub)
        karmada.install()
        token = cell.token("compute-hub")
        karmada.register(CELL, CELL.upper(), cell.server, token, cell.authority)
        kubeconfigs = (hub.kubeconfig, hub.name), (cell.kubeconfig, cell.name)
        return asyncio.run(_propagate(kubeconfigs, deployments))
    finally:
        if karmada is not None:
            karmada.down()
        servers.stop()


async def _propagate(kubeconfigs: Kubeconfigs, deployments: int) -> list[float]:
    """Return the seconds of each deployment from its write on the hub to its copy on the cell."""
    async with AsyncExitStack() as stack:
        clients = []
        for file, context in kubeconfigs:
            connection = connection_of(load_kubeconfig([file]), context)
            transport = Http1Transport(connection.server, ca_pem=connection.ca_pem)
            await stack.enter_async_context(transport)
            clients.append(build_client(connection, transport))
        hub, cell = clients
        namespace = await _set_up(hub)
        await _propagate_one(hub, cell, namespace, "first")  # the cell gets its namespace
        names = [f"web{number}" for number in range(deployments)]
        return [await _propagate_one(hub, cell, namespace, name) for name in names]


async def _set_up(hub: Client) -> Namespace:
    """Create the hub namespace, a deployment that is not measured, and the policy of its city."""
    await _create(hub, _plan("unmeasured", None))
    namespace = await hub.get(NAMESPACE, Ref("", TARGET))
    await _create(hub, _plan("unmeasured", namespace))
    deployments = (await hub.list(DEPLOYMENT, TARGET)).items
    policies = (await hub.list(POLICY, TARGET)).items
    await _create(hub, plan_policies(namespace, deployments, policies, None))
    return namespace


async def _propagate_one(hub: Client, cell: Client, namespace: Namespace, name: str) -> float:
    start_s = time.perf_counter()
    await _create(hub, _plan(name, namespace))
    while not await _has_copy(cell, Ref(TARGET, name)):
        assert time.perf_counter() - start_s < TIMEOUT_S, f"{name} is not copied to the cell"
        await asyncio.sleep(POLL_S)
    return time.perf_counter() - start_s


def _plan(name: str, hub_namespace: Namespace | None) -> Plan:
    """Return the plan of the federator for a deployment that the hub does not have."""
    deployment = a_deployment("web:1", name=name, city=CELL.upper())
    recorded = {**deployment.metadata.annotations, labels.FEDERATION_NAMESPACE: TARGET}
    metadata = replace(
        deployment.metadata,
        namespace=OWN.metadata.name,
        annotations=recorded,
        finalizers=[labels.FEDERATOR_FINALIZER],
    )
    state = HubState(namespace=hub_namespace, deployment=None, binding=None)
    return plan_federation(PROJECT, replace(deployment, metadata=metadata), OWN, state, NOW)


async def _create(hub: Client, plan: Plan) -> None:
    for action in plan.actions:
        if isinstance(action, Create):
            try:
                await hub.create(action.kind, action.object)
            except AlreadyExists:  # a controller of the embedded hub was first
                continue


async def _has_copy(cell: Client, ref: Ref) -> bool:
    try:
        await cell.get(DEPLOYMENT, ref)
    except NotFound:
        return False
    return True
