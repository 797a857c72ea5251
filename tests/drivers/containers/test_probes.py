"""Probes and port checks, and the readiness that follows from them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from errno import ECONNREFUSED
from pathlib import Path

import msgspec
import pytest

from datum_compute.api.compute.instance import ContainerPort, Probe, TcpSocket
from datum_compute.api.meta.codec import decode
from datum_compute.drivers.container_defaults import PORT_CHECK
from datum_compute.drivers.containers import probes
from datum_compute.drivers.containers.container_spec import (
    PLAN,
    ContainerPlan,
    MachinePlan,
    container_labels,
    read_plan,
)
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import (
    Machine,
    MachineRecord,
    MachineSnapshot,
)
from datum_compute.drivers.containers.probes import (
    CONCURRENT_PORT_CHECKS_MAX,
    ProbeCounter,
    ProbeTarget,
    check_probe,
)
from datum_compute.drivers.containers.status import ReadinessResults, snapshot_state
from datum_compute.drivers.driver import NOT_OBSERVED, MachineState
from tests.drivers.containers.memory_engine import MemoryEngine
from tests.drivers.containers.test_driver import HOST, ID, OWNER, Clock, a_driver, run_driver
from tests.stream_servers import close_at_once, serve_tcp

HTTP = ContainerPort(name="http", port=8080)
DNS = ContainerPort(name="dns", port=53, protocol="UDP")


def a_plan(*ports: ContainerPort, readiness: Probe | None = None) -> MachinePlan:
    container = ContainerPlan(name="app", image="web:1", ports=list(ports), readiness=readiness)
    return MachinePlan(containers=[container], addresses=[HOST])


def a_snapshot(record: MachineRecord | None = None, started_s: float = 0.0) -> MachineSnapshot:
    inspected = {
        "app": InspectedContainer("app", "id", "running", started_at="then", started_s=started_s)
    }
    return MachineSnapshot(["app"], inspected, record or MachineRecord(), now_s=50.0)


def state(
    plan: MachinePlan, results: ReadinessResults, record: MachineRecord | None = None
) -> MachineState:
    return snapshot_state(plan, a_snapshot(record), results, "")


def test_a_container_with_a_tcp_port_is_not_ready_before_its_port_check() -> None:
    unchecked = state(a_plan(HTTP), ReadinessResults())
    assert (unchecked.phase, unchecked.reason) == ("Running", "Starting")
    assert state(a_plan(HTTP), ReadinessResults(verdicts={"app": True})).reason == ""


def test_a_closed_port_is_in_the_message() -> None:
    failure = "port 8080 (http) does not accept connections: connection refused"
    closed = state(
        a_plan(HTTP), ReadinessResults(verdicts={"app": False}, failures={"app": failure})
    )
    assert (closed.reason, closed.message) == ("NotReady", failure)
    starting = state(a_plan(HTTP), ReadinessResults(failures={"app": failure}))
    assert (starting.reason, starting.message) == ("Starting", failure)


@pytest.mark.parametrize("ports", [(), (DNS,)], ids=["no port", "UDP"])
def test_without_a_tcp_port_there_is_nothing_to_check(ports: tuple[ContainerPort, ...]) -> None:
    assert a_plan(*ports).containers[0].readiness_check is None
    assert state(a_plan(*ports), ReadinessResults()).reason == ""


def test_a_readiness_probe_replaces_the_port_check() -> None:
    probe = Probe(tcp_socket=TcpSocket(port=1))
    assert a_plan(HTTP, readiness=probe).containers[0].readiness_check is probe
    assert a_plan(HTTP, readiness=probe).containers[0].ports_to_check == []


def test_a_restarted_machine_with_an_open_port_counts_as_crashed_until_it_is_proven() -> None:
    """An image may listen for a moment before it exits again."""
    ended = MachineRecord(exit_code=1, ended_s=40.0, restarts=1)
    snapshot = a_snapshot(ended, started_s=45.0)
    open_port = ReadinessResults(verdicts={"app": True})
    assert snapshot_state(a_plan(HTTP), snapshot, open_port, "").phase == "Failed"
    later = MachineSnapshot(snapshot.container_names, snapshot.inspected, ended, now_s=55.0)
    assert snapshot_state(a_plan(HTTP), later, open_port, "").phase == "Running"


def test_a_restarted_machine_is_recovering_while_its_ports_accept_connections() -> None:
    """It receives traffic at once, although it does not count as ready yet."""
    ended = MachineRecord(exit_code=1, ended_s=40.0, restarts=1)
    snapshot = a_snapshot(ended, started_s=45.0)
    open_port = ReadinessResults(verdicts={"app": True})
    recovering = snapshot_state(a_plan(HTTP), snapshot, open_port, "")
    assert (recovering.phase, recovering.is_recovering) == ("Failed", True)
    assert recovering.addresses == (HOST,)
    for results in (ReadinessResults(), ReadinessResults(verdicts={"app": False})):
        closed = snapshot_state(a_plan(HTTP), snapshot, results, "")
        assert (closed.phase, closed.is_recovering) == ("Failed", False)
    down = a_snapshot(msgspec.structs.replace(ended, is_down=True), started_s=45.0)
    assert not snapshot_state(a_plan(HTTP), down, open_port, "").is_recovering
    unchecked = snapshot_state(a_plan(), snapshot, ReadinessResults(), "")
    assert not unchecked.is_recovering, "nothing shows that it serves"


def test_the_label_of_a_container_is_the_same_as_before_ports_were_checked() -> None:
    """The check is not part of the plan, so containers of an earlier release are checked too."""
    label = container_labels(OWNER, ID, "app", a_plan(HTTP))[PLAN]
    (container,) = decode(label.encode())["containers"]
    assert container == {"name": "app", "image": "web:1", "ports": [{"name": "http", "port": 8080}]}
    read = read_plan({PLAN: label})
    assert read is not None
    assert read.containers[0].readiness_check is PORT_CHECK


@asynccontextmanager
async def a_listener() -> AsyncIterator[int]:
    async with serve_tcp(close_at_once) as port:
        yield port


async def a_closed_port() -> int:
    async with a_listener() as port:
        pass
    return port


async def check_ports(*ports: ContainerPort) -> str:
    target = ProbeTarget(HOST, "id", a_plan(*ports).containers[0])
    return await check_probe(Engine("unused"), PORT_CHECK, target)


async def test_every_port_is_checked() -> None:
    async with a_listener() as first, a_listener() as second:
        http, admin = (
            ContainerPort(name="http", port=first),
            ContainerPort(name="admin", port=second),
        )
        assert await check_ports(http, admin, DNS) == ""
        closed = msgspec.structs.replace(admin, port=await a_closed_port())
        expected = f"port {closed.port} (admin) does not accept connections: connection refused"
        assert await check_ports(http, closed) == expected


class Writer:
    def close(self) -> None: ...


class Connections:
    """Counts connections instead of opening them; ``closed`` ports refuse connections."""

    def __init__(self, *closed: int) -> None:
        self.closed = closed
        self.attempted: list[int] = []
        self.open = self.open_max = 0

    async def connect(self, _address: str, port: int) -> tuple[None, Writer]:
        self.attempted.append(port)
        self.open += 1
        self.open_max = max(self.open_max, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        if port in self.closed:
            raise ConnectionRefusedError(ECONNREFUSED, "refused")
        return None, Writer()


async def test_few_ports_are_checked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections()
    monkeypatch.setattr(probes, "connect_on_link", connections.connect)
    assert (
        await check_ports(*(ContainerPort(name="p", port=number) for number in range(1, 2001)))
        == ""
    )
    assert connections.attempted == list(range(1, 2001))
    assert connections.open_max == CONCURRENT_PORT_CHECKS_MAX


async def test_a_port_is_checked_once_and_none_after_a_closed_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections = Connections(3)
    monkeypatch.setattr(probes, "connect_on_link", connections.connect)
    numbers = [1, 1, 2, 2, 3, *range(4, 2001)]
    assert "port 3 " in await check_ports(
        *(ContainerPort(name="p", port=number) for number in numbers)
    )
    assert connections.attempted == list(range(1, CONCURRENT_PORT_CHECKS_MAX + 1))


def test_an_adopted_machine_is_not_observed_before_its_port_check() -> None:
    inspected = {"app": InspectedContainer("app", "id", "running", started_s=1.0)}
    machine = Machine(ID, a_plan(HTTP), inspected=inspected)
    assert not machine.is_readiness_known(50.0)
    machine.readiness["app"] = False
    assert machine.is_readiness_known(50.0)


async def test_a_machine_of_an_earlier_release_with_a_closed_port_is_not_ready_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause_s = ProbeCounter.next_pause_s
    monkeypatch.setattr(ProbeCounter, "next_pause_s", lambda counter: pause_s(counter) / 100)
    engine, clock = MemoryEngine(OWNER), Clock()
    port = ContainerPort(name="http", port=await a_closed_port())
    engine.add(ID, a_plan(port))
    async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
        async with asyncio.timeout(60):
            while (state := await driver.observe(ID)) is NOT_OBSERVED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert isinstance(state, MachineState)
        assert (state.phase, state.reason) == ("Running", "NotReady")
        assert f"port {port.port} (http) does not accept connections" in state.message
        assert engine.changed() == [], "nothing was recreated"


async def test_an_adopted_machine_with_an_open_port_is_ready(tmp_path: Path) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    async with a_listener() as number:
        engine.add(ID, a_plan(ContainerPort(name="http", port=number)))
        async with run_driver(a_driver(engine, tmp_path, clock)) as driver:
            async with asyncio.timeout(20):
                while (state := await driver.observe(ID)) is NOT_OBSERVED:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert isinstance(state, MachineState)
    assert (state.phase, state.reason) == ("Running", "")


async def test_a_sleeping_machine_is_not_checked(tmp_path: Path) -> None:
    engine, clock = MemoryEngine(OWNER), Clock()
    engine.add(ID, a_plan(ContainerPort(name="http", port=await a_closed_port())), status="paused")
    records = {ID: MachineRecord(sleep_mode="pause")}
    async with run_driver(a_driver(engine, tmp_path, clock, records)) as driver:
        async with asyncio.timeout(20):
            while (state := await driver.observe(ID)) is NOT_OBSERVED:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert isinstance(state, MachineState)
        assert state.phase == "Sleeping"
        assert driver._machines[ID].probe_tasks == {}


def test_a_probe_counts_periods_before_its_first_success_and_failures_after_it() -> None:
    counter = ProbeCounter(Probe(period_seconds=2, failure_threshold=3))
    waited_s = 0.0
    verdicts: list[tuple[bool, float]] = []
    while not verdicts:
        verdict = counter.add_result(is_good=False)
        if verdict is not None:
            verdicts.append((verdict, waited_s))
        pause_s = counter.next_pause_s()
        assert pause_s <= 1.0, "it runs often until its first success"
        waited_s += pause_s
    assert verdicts[0][0] is False
    assert 4.0 <= verdicts[0][1] < 6.0
    assert counter.add_result(is_good=True) is True
    assert counter.next_pause_s() == 2.0
    assert [counter.add_result(is_good=False) for _ in range(3)] == [None, None, False]
