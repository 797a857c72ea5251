"""Crash reports contain what was known at the exit of a machine."""

from __future__ import annotations

import asyncio

import msgspec

from datum_compute.api.compute.instance import ContainerPort, HttpGet, Probe
from datum_compute.drivers.containers.container_spec import (
    ContainerPlan,
    MachinePlan,
)
from datum_compute.drivers.containers.crash_reports import build_crash_report, build_removal_report
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import (
    Machine,
    MachineRecord,
)
from datum_compute.drivers.containers.probes import (
    ProbeRunner,
)
from datum_compute.drivers.logs import LogOwner
from tests.drivers.containers.test_driver import HOST, ID
from tests.stream_servers import serve_tcp

HTTP = ContainerPort(name="http", port=8080)


def a_plan(*ports: ContainerPort, readiness: Probe | None = None) -> MachinePlan:
    container = ContainerPlan(name="app", image="web:1", ports=list(ports), readiness=readiness)
    return MachinePlan(containers=[container], addresses=[HOST])


async def test_a_crash_report_contains_only_probe_results_from_before_the_exit() -> None:
    now_s = 1.0
    has_verdict = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now_s
        await reader.readuntil(b"\r\n\r\n")
        now_s += 1.0
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")

    async def receive(machine: Machine, name: str, is_good: bool, failure: str) -> None:
        has_verdict.set()

    async with serve_tcp(serve) as port:
        probe = Probe(http_get=HttpGet(port=port), failure_threshold=1, period_seconds=60)
        container = ContainerPlan(name="a", image="web:1", readiness=probe)
        plan = MachinePlan(containers=[container], addresses=[HOST])
        machine = Machine(
            "ns/web-0/uid", plan, inspected={"a": InspectedContainer("a", "id", "running", None)}
        )
        probing = ProbeRunner(Engine("unused"), receive, receive, lambda: now_s)
        async with asyncio.TaskGroup() as group:
            probing.begin(machine, group.create_task)
            await has_verdict.wait()
            probing.end(machine)
    failure = f"GET http://{HOST}:{port}/: 503"
    assert reported_probes(machine, ended_s=1.5) == {}, "it arrived at 2"
    assert reported_probes(machine, ended_s=2.5) == {"readiness probe of a": failure}


def test_a_crash_report_names_the_template_and_the_workload_of_its_machine() -> None:
    owner = LogOwner(workload="web", uid="uid-of-web")
    plan = msgspec.structs.replace(a_plan(HTTP), template_hash="h", owner=owner)
    machine = Machine(ID, plan, record=MachineRecord(container="app", is_down=True, exit_code=1))
    assert build_crash_report(machine, 1.0).template_hash == "h"
    assert build_removal_report(machine, None, (), 1.0).template_hash == "h"
    assert build_crash_report(machine, 1.0).workload_uid == "uid-of-web"
    assert build_removal_report(machine, None, (), 1.0).workload_uid == "uid-of-web"


def reported_probes(machine: Machine, ended_s: float) -> dict[str, str]:
    machine.record = MachineRecord(container="a", is_down=True, ended_s=ended_s)
    return build_crash_report(machine, ended_s).probes
