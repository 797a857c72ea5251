"""A thousand instances on a real kube-apiserver, in single-cluster mode.

The bench compares the time of the manager with that of a bare client, to separate the cost of the
controllers from that of the API server. The manager runs with the shipped account. Its writes are
read from the audit log. The client sends the same writes, in the same order for each object, as
fast as the API server accepts them. Requires ``make kube-assets``.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from bench.measurement import RESULTS, Measurement
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import CLAIM, INSTANCE, NAMESPACE, SERVER
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client
from datum_compute.client.connect import open_transport
from hack.kube_assets import built_assets
from testkit.processes.api_servers import RealPlane, RealServers
from testkit.processes.local_platform import BIN, eventually
from testkit.processes.programs import start_process, stop
from testkit.processes.single_cluster import (
    DEPLOY,
    install_crds,
    workload,
    write_account_kubeconfig,
)

INSTANCES = 1_000
TIMEOUT_S = 900
CONNECTIONS = 32
NAMESPACE_NAME, FLOOR = "shop", "floor"
KINDS: dict[str, KindInfo[Any]] = {k.plural: k for k in (INSTANCE, SERVER, CLAIM)}
_WRITES = ("create", "update", "patch", "delete")
_SERVER_FIELDS = ("uid", "resourceVersion", "managedFields", "creationTimestamp", "generation")
_OWNER_FIELDS = ("ownerReferences", "finalizers", "namespace")


@dataclass(frozen=True, slots=True)
class Write:
    verb: str
    plural: str
    part: str
    name: str


def measure() -> list[Measurement]:
    RESULTS.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=RESULTS) as folder, _real_plane(Path(folder)) as plane:
        manager_s, writes = _measure_manager(plane, Path(folder))
        floor_s = asyncio.run(_replay(plane, writes))
    own = Counter(write.plural for write in writes)
    total = sum(own.values())
    bare = "bare client, the same writes"
    return [
        Measurement("load of the machine at the end", os.getloadavg()[0], "processes"),
        Measurement("writes per instance", total / INSTANCES, "", at_most=14),
        *(Measurement(f"of {plural}", n / INSTANCES, "") for plural, n in own.most_common(6)),
        Measurement(bare, floor_s, "s"),
        Measurement("1,000 ready", manager_s, "s", bare, at_most=1.3 * floor_s),
    ]


@contextmanager
def _real_plane(folder: Path) -> Iterator[RealPlane]:
    servers = RealServers(built_assets(os.environ), folder)
    try:
        servers.start_etcd()
        plane = servers.start_plane("bench")
        install_crds(plane.admin)
        plane.admin("apply", "-f", str(DEPLOY / "single-cluster"))
        plane.admin("create", "namespace", NAMESPACE_NAME)
        yield plane
    finally:
        servers.stop()


def _measure_manager(plane: RealPlane, folder: Path) -> tuple[float, list[Write]]:
    """Return the time from the Workload to the last ready instance, and the writes."""
    kubectl = plane.admin.in_namespace(NAMESPACE_NAME)
    _raise_quota(plane)
    manager = start_process(
        [
            str(BIN / "compute-manager"),
            "--enable-management-controllers",
            "--enable-cell-controllers",
            f"--kubeconfig={write_account_kubeconfig(plane.admin, folder / 'one.kubeconfig')}",
            f"--state-dir={folder / 'manager'}",
            "--no-leader-elect",  # a manager that loses its lease exits
        ],
        folder / "manager.log",
    )
    try:
        eventually(lambda: _bucket_is_known(plane), "the manager has created a bucket", within_s=60)
        before, start_s = len(_read_writes(plane)), time.perf_counter()
        kubectl("apply", "-f", "-", stdin=json.dumps(_workload()))
        expected = f"{INSTANCES}/{INSTANCES}"
        path = "jsonpath={.status.readyReplicas}/{.status.replicas}"
        eventually(
            lambda: kubectl("get", "workload/web", "-o", path) == expected,
            "all instances are ready",
            TIMEOUT_S,
        )
        return time.perf_counter() - start_s, _read_writes(plane)[before:]
    finally:
        stop(manager)


def _workload() -> JsonObject:
    found = workload("web:1", INSTANCES)
    settings = found["spec"]["placements"][0]["scaleSettings"]
    settings["instanceManagementPolicy"] = "Parallel"
    return found


def _raise_quota(plane: RealPlane) -> None:
    quota = plane.admin.in_namespace("milo-system")
    grant = quota.json("get", "resourcegrant/compute-default")
    for allowance in grant["spec"]["allowances"]:
        allowance["buckets"][0]["amount"] *= 2 * INSTANCES
    quota("replace", "-f", "-", stdin=json.dumps(grant))


def _bucket_is_known(plane: RealPlane) -> bool:
    return bool(plane.admin.json("get", "allowancebuckets", "-A")["items"])


def _read_writes(plane: RealPlane) -> list[Write]:
    """Return the successful writes, without those of Events and Leases."""
    found = []
    for line in (plane.folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        what, code = event.get("objectRef", {}), event.get("responseStatus", {}).get("code", 0)
        if event["verb"] not in _WRITES or code >= 300:
            continue
        if what.get("resource") not in ("events", "leases"):
            part = what.get("subresource", "")
            found.append(Write(event["verb"], what["resource"], part, what.get("name", "")))
    return found


# --- the floor


async def _replay(plane: RealPlane, writes: Sequence[Write]) -> float:
    connection = connection_of(load_kubeconfig([plane.kubeconfig]))
    outside = AuthEnvironment(environ={}, is_terminal=False, unix_s=time.time, random=Random(1))
    async with open_transport(connection, outside) as transport:
        client = build_client(connection, transport)
        await client.create(NAMESPACE, Namespace(metadata=ObjectMeta(name=FLOOR)))
        bodies = {
            (plural, obj["metadata"]["name"]): obj
            for plural, kind in KINDS.items()
            for obj in (await client.list_plain(kind, NAMESPACE_NAME)).items
        }
        chains: dict[tuple[str, str], list[Write]] = defaultdict(list)
        for write in writes:
            if (write.plural, write.name) in bodies:
                chains[write.plural, write.name].append(write)
        gate, start_s = asyncio.Semaphore(CONNECTIONS), time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for key, chain in chains.items():
                group.create_task(_replay_chain(client, gate, bodies[key], chain))
        spent_s = time.perf_counter() - start_s
        # Scale up for the writes of objects that are not replayed.
        return spent_s * len(writes) / sum(len(chain) for chain in chains.values())


async def _replay_chain(
    client: Client, gate: asyncio.Semaphore, obj: JsonObject, chain: Sequence[Write]
) -> None:
    """Send all writes of one object sequentially."""
    kind, name = KINDS[chain[0].plural], obj["metadata"]["name"]
    async with gate:
        for number, write in enumerate(chain):
            if write.verb == "create":
                await client.create_plain(kind, _without_server_fields(obj))
            elif write.part == "status":
                status = {**obj.get("status", {}), "conditions": _changed_conditions(obj, number)}
                if not obj.get("status", {}).get("conditions"):
                    status = {**obj.get("status", {}), "phase": ("Pending", "Running")[number % 2]}
                found = await client.get(kind, Ref(FLOOR, name))
                version = found.metadata.resource_version
                await client.patch_status(kind, Ref(FLOOR, name), status, version=version)
            else:
                change = {"metadata": {"labels": {"written": str(number)}}}
                await client.patch(kind, Ref(FLOOR, name), change)


def _without_server_fields(obj: JsonObject) -> JsonObject:
    left_out = (*_SERVER_FIELDS, *_OWNER_FIELDS)
    metadata = {k: v for k, v in obj["metadata"].items() if k not in left_out}
    body = {k: v for k, v in obj.items() if k != "status"}
    return {**body, "metadata": {**metadata, "namespace": FLOOR}}


def _changed_conditions(obj: JsonObject, number: int) -> list[JsonObject]:
    conditions = obj.get("status", {}).get("conditions", [])
    return [{**condition, "message": f"{number}"} for condition in conditions]
