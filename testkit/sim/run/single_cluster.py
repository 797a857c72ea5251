"""Worlds in single-cluster mode: an API server, a manager next to it, and machines.

Users, faults and checks are those of ``world.py``, on two hosts. The checks expect the planes of a
federation, so every row is assigned to the plane that would hold it there: objects of users to the
project, objects of controllers to the cell. ``python -m testkit.sim.run.single_cluster [FIRST]
[SEEDS]`` searches seeds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import msgspec

from datum_compute.api.core import Namespace
from datum_compute.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from datum_compute.api.kinds import (
    BUCKET,
    CLAIM,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    NETWORK_BINDING,
    SERVER,
    WORKLOAD,
)
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, cell_plane, project_plane
from datum_compute.api.quota import INSTANCES, QUOTA_NAMESPACE
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.client.transport.retry import RetryingTransport
from datum_compute.controllers import registry
from datum_compute.planes.catalogue import project_objects
from datum_compute.planes.roles import MANAGER_USER, RBAC
from datum_compute.store.journal import Change, Entry, ObjectKey
from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from hack.account_rules import single_cluster_rules
from testkit.sim.actors.fault_injector import SimulatedFaultInjector
from testkit.sim.actors.users import DesiredWorkload, Users, manifest
from testkit.sim.checks.invariants import InvariantBroken, Observer, exclusion_checked
from testkit.sim.checks.state import ClusterState
from testkit.sim.disk import Disk
from testkit.sim.host import EPOCH_S, HostEnvironment, HostRoles, SimulatedHost, credentials_of
from testkit.sim.loop import VirtualLoop, run_virtual, stream
from testkit.sim.network import SimulatedNetwork, WrapTransport
from testkit.sim.provider import Provider
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.draw import MEDIUM, draw_data, draw_operations
from testkit.sim.scenario.operations import ByUser, Operation
from testkit.sim.scenario.scenario import USER, WorldLayout
from testkit.sim.single_host import HostTransport

SERVER_HOST, MANAGER_HOST = "server", "manager"
PROJECT, CELL_NAME = "alpha", "dfw"
CELL = cell_plane(CELL_NAME)
ALLOWED = 6  # instance quota; users request more
CHAOS_S, CONVERGE_S, QUIET_S = 25.0, 300.0, 120.0
SHORT_LIVED = "short-lived"

_LAYOUT = WorldLayout("one", (PROJECT,), (CELL_NAME,))
_ON_CELL = frozenset(k.resource for k in (DEPLOYMENT, INSTANCE, SERVER, NAMESPACE))
_LEAVING = (WORKLOAD, CLAIM, NETWORK_BINDING, DEPLOYMENT, INSTANCE, SERVER)


def run_single_cluster(seed: int) -> Counter[str]:
    """Run one world and return how often each fault happened. Raise InvariantBroken if a rule is
    violated."""

    async def main(loop: VirtualLoop) -> Counter[str]:
        world = SingleClusterWorld(loop, seed)
        with exclusion_checked(world.observer.report_violation):
            return await world.run()

    return run_virtual(stream(seed, "schedule"), main)


class SingleClusterWorld:
    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop, self._seed = loop, seed
        self.sometimes: Counter[str] = Counter()
        self.provider = Provider(lambda: EPOCH_S + loop.time())
        self.state = ClusterState({CELL: self.provider}, loop.time)
        self.observer = Observer(self.state, (PROJECT,))
        self.network = SimulatedNetwork(
            lambda part: stream(seed, "network", part),
            lambda _plane, _age_s: 0,
            lambda sign: self.sometimes.update([sign]),
        )
        self.hosts = self._build_all_hosts()
        self.users = Users(self.client, self.observer.log, (project_plane(PROJECT),))
        self.injector = SimulatedFaultInjector(
            loop=loop,
            layout=_LAYOUT,
            network=self.network,
            hosts=self.hosts,
            providers={CELL: self.provider},
            operator=self.client,
            log=self.observer.log,
            drop_plane=self.state.drop_plane,
            restored=self.state.restore,
            tamper=self.users.tamper,
        )

    # --- phases of the run

    async def run(self) -> Counter[str]:
        for host in self.hosts.values():
            host.start()
        await self._bring_up()
        begin_s = self._loop.time()
        random = stream(self._seed, "workload")
        operations = [
            _delay_operation(o, begin_s) for o in _draw_user_operations(random, self._seed)
        ]
        acting = self._loop.create_task(self.users.perform_all(operations))
        leaving = self._loop.create_task(self._short_life(random))
        faults = draw_faults(stream(self._seed, "faults"), begin_s)
        injecting = self._loop.create_task(self.injector.run(faults))
        await asyncio.sleep(CHAOS_S)
        self.injector.recover()
        self.observer.log("calm")
        await self._until(lambda: "" if acting.done() and leaving.done() else "people insist")
        for task in (acting, leaving, *([injecting] if injecting.done() else ())):
            await task
        await self._until(lambda: self._find_missing(self.users.desired))
        await self._check_quiet()
        await self.users.delete_everything()
        await self._until(lambda: self._find_missing({}) or self._find_leftovers())
        await self._check_quiet()
        return self.sometimes

    async def _bring_up(self) -> None:
        """Install what the files in deploy/single-cluster install."""
        operator = Client(
            HostTransport(self.hosts[SERVER_HOST].answer_operator), prefix="", token="", agent="op"
        )
        await asyncio.sleep(10.0)
        assert self.hosts[SERVER_HOST].is_up, "the API server did not come up"
        role = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": "compute-manager"}}
        await operator.create_plain(
            CLUSTER_ROLE, {**role, "kind": "ClusterRole", "rules": list(single_cluster_rules())}
        )
        reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "compute-manager"}
        subjects = [{"apiGroup": RBAC, "kind": "User", "name": MANAGER_USER}]
        binding = {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
        await operator.create_plain(CLUSTER_ROLE_BINDING, {**role, **binding})
        quota = Namespace(metadata=ObjectMeta(name=QUOTA_NAMESPACE))
        await operator.create(NAMESPACE, quota)
        limits = {**_LAYOUT.limits, INSTANCES.resource_type: ALLOWED}
        for kind, obj in project_objects(project_plane(PROJECT), (CELL,), limits):
            await operator.create(kind, obj)

    async def _short_life(self, random: Random) -> None:
        """Create a namespace with a workload, and delete the namespace at a random time."""
        user, name = self.client(PLATFORM), SHORT_LIVED
        body = manifest(
            (PROJECT, "brief"), DesiredWorkload("brief:1", random.randint(1, 3), ("DFW",))
        )
        body["metadata"]["namespace"] = name
        await asyncio.sleep(random.uniform(0, 5))
        namespace = Namespace(metadata=ObjectMeta(name=name))
        await _retry_until_done(lambda: user.create(NAMESPACE, namespace))
        await _retry_until_done(lambda: user.create_plain(WORKLOAD, body))
        await asyncio.sleep(random.uniform(0, 12))
        self.observer.log(f"delete namespace {name}")
        await _retry_until_done(lambda: user.delete(NAMESPACE, Ref("", name)))

    async def _until(self, missing: Callable[[], str]) -> None:
        deadline_s = self._loop.time() + CONVERGE_S
        while left := missing():
            self._fail_if_broken()
            if self._loop.time() > deadline_s:
                raise InvariantBroken(f"I6: not converged after {CONVERGE_S:g} s: {left}")
            await asyncio.sleep(1.0)
        self._fail_if_broken()

    async def _check_quiet(self) -> None:
        await asyncio.sleep(5.0)
        writes, lines = self.state.writes, len(self.observer.trace)
        await asyncio.sleep(QUIET_S)
        self._fail_if_broken()
        if self.state.writes != writes:
            written = "\n".join(self.observer.trace[lines:][:10])
            raise InvariantBroken(f"I6: writes in a settled system:\n{written}")

    def _fail_if_broken(self) -> None:
        if self.observer.broken is not None:
            raise self.observer.broken

    # --- checks after the calm

    def _find_missing(self, desired: dict[tuple[str, str], DesiredWorkload]) -> str:
        """Check that as many machines run as are desired and quota allows, each with a desired
        image, and that status counts match."""
        machines = Counter(self._image(machine_id) for machine_id in self.provider.alive())
        replicas = {workload.image: 0 for workload in desired.values()}
        for workload in desired.values():
            replicas[workload.image] += workload.replicas
        total, most = machines.total(), sum(replicas.values())
        if total != min(most, ALLOWED) or any(machines[i] > replicas.get(i, 0) for i in machines):
            return f"machines of {dict(machines)} run, {replicas} are desired, {ALLOWED} allowed"
        ready = 0
        for _, row in self.state.rows_of(f"project/{PROJECT}", WORKLOAD.resource):
            ready += (row.get("status") or {}).get("readyReplicas", 0)
        return "" if ready == total else f"workloads call {ready} ready, {total} machines run"

    def _image(self, machine_id: str) -> str:
        namespace, name, _ = machine_id.split("/")
        rows = self.state.rows.get(CELL, {})
        row = rows.get(ObjectKey(SERVER.resource, namespace, name))
        return str(row["spec"]["containers"][0]["image"]) if row is not None else machine_id

    def _find_leftovers(self) -> str:
        for plane in (f"project/{PROJECT}", CELL):
            for kind in _LEAVING:
                for key, _ in self.state.rows_of(plane, kind.resource):
                    return f"{kind.kind} {key.namespace}/{key.name} is left"
        for _, row in self.state.rows_of(f"project/{PROJECT}", BUCKET.resource):
            if (row.get("status") or {}).get("allocated", 0):
                return f"{row['spec']['resourceType']} is still used"
        return ""

    # --- construction

    def _build_all_hosts(self) -> dict[str, SimulatedHost]:
        host_environment = HostEnvironment(
            loop=self._loop,
            credentials=credentials_of((PLATFORM, HUB)),
            providers={CELL: self.provider},
            reach=self._reach,
            on_commit=self._on_commit,
            on_crash=self._on_death,
            on_exit=lambda _host, _error: None,
            on_answer=lambda _request, _response: None,
        )
        names = (PLATFORM, project_plane(PROJECT), CELL)
        controllers = registry.single_cluster(PROJECT)
        for number, roles in enumerate(
            (
                HostRoles(SERVER_HOST, (PLATFORM, HUB), True, registry.CLUSTER, ()),
                HostRoles(MANAGER_HOST, (), False, controllers, names, single_project=PROJECT),
            )
        ):
            disk, ids = (stream(self._seed, purpose, roles.name) for purpose in ("disk", "ids"))
            self.network.hosts[roles.name] = SimulatedHost(
                roles, host_environment, Disk(disk), ids, number
            )
        return self.network.hosts

    def _reach(self, source: str, _plane: PlaneName, wrap: WrapTransport) -> Transport:
        link = wrap(self.network.transport(source, SERVER_HOST))
        if source == SERVER_HOST:
            return link
        return RetryingTransport(link, stream(self._seed, "network", f"retries-{source}"))

    def client(self, _plane: PlaneName) -> Client:
        """Return a client of the administrator."""
        transport = self.network.transport(USER, SERVER_HOST)
        return Client(transport, prefix="", token=f"token-of-{PLATFORM}", agent="simulated-user")

    def _on_death(self, host: str) -> None:
        self.observer.log(f"{host} died")
        self.network.drop_host(host)

    def _on_commit(self, number: int, batch: Sequence[Entry]) -> None:
        self.observer.on_commit(number, [_entry_on_federation_plane(entry) for entry in batch])


def _entry_on_federation_plane(entry: Entry) -> Entry:
    """Assign a row to the plane of a federation that would hold it."""
    if not isinstance(entry, Change) or entry.plane != PLATFORM:
        return entry
    on_cell = entry.key.resource in _ON_CELL
    return msgspec.structs.replace(entry, plane=CELL if on_cell else project_plane(PROJECT))


def _draw_user_operations(random: Random, seed: int) -> list[ByUser]:
    drawn = draw_operations(random, _LAYOUT, MEDIUM, CHAOS_S / 2)
    if seed % 2 == 0:
        drawn = draw_data(stream(seed, "workload", "data"), _LAYOUT, drawn, CHAOS_S / 2)
    return [operation for operation in drawn if isinstance(operation, ByUser)]


def _delay_operation(operation: Operation, by_s: float) -> Operation:
    return replace(operation, at_s=operation.at_s + by_s)


async def _retry_until_done(send_request: Callable[[], object]) -> None:
    while True:
        try:
            await send_request()  # type: ignore[misc]
        except (AlreadyExists, NotFound):
            return
        except (ApiError, Unreachable):
            await asyncio.sleep(0.3)
        else:
            return


def draw_faults(random: Random, begin_s: float) -> tuple[f.Fault, ...]:
    """Draw faults of the two hosts, their link and the machines."""
    link = (MANAGER_HOST, SERVER_HOST)
    found: list[f.Fault] = []
    for _ in range(random.randint(0, 6)):
        at_s = begin_s + round(random.uniform(0, CHAOS_S * 0.7), 2)
        for_s, salt = random.choice((1.0, 4.0, 12.0)), random.getrandbits(32)
        host = random.choice((SERVER_HOST, MANAGER_HOST, MANAGER_HOST))
        percent = random.choice((20, 60))
        found.append(
            random.choice(
                (
                    f.StopHost(at_s, for_s, host),
                    f.StopHost(at_s, 0.5, MANAGER_HOST),
                    f.CrashAtCommit(at_s, SERVER_HOST, random.randint(1, 40), durable=percent > 50),
                    f.PauseHost(at_s, for_s, MANAGER_HOST),
                    f.CutLink(at_s, for_s, *link),
                    f.LoseRequests(at_s, for_s, *link, percent, applied=bool(salt % 2), salt=salt),
                    f.DelayWrites(at_s, for_s, *link, percent, 3.0, salt),
                    f.RepeatWrites(at_s, for_s, *link, percent, 2.0, salt),
                    f.Throttle(at_s, for_s, *link, percent, salt),
                    f.CloseWatches(at_s, *link),
                    f.LagWatches(at_s, for_s, *link, 2.0),
                    f.LoseDeletes(at_s, for_s, *link),
                    f.ForgetHistory(at_s, SERVER_HOST),
                    f.ProviderAway(at_s, for_s, CELL_NAME),
                    f.LoseMachine(at_s, CELL_NAME, salt % 100),
                )
            )
        )
    return tuple(sorted(found, key=lambda fault: fault.at_s))


@exit_on_broken_pipe
def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m testkit.sim.run.single_cluster")
    parser.add_argument("first", nargs="?", type=int, default=1, help="the first seed (1)")
    parser.add_argument("seeds", nargs="?", type=int, default=50, help="how many (50)")
    options = parser.parse_args(arguments)
    first, seeds = options.first, options.seeds
    failed = 0
    for seed in range(first, first + seeds):
        try:
            run_single_cluster(seed)
        except Exception as error:  # also a bug, in the product or in the simulator
            failed += 1
            sys.stdout.write(f"seed {seed}: {error!r}\n")
    sys.stdout.write(f"{seeds - failed} of {seeds} seeds hold\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
