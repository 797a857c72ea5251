"""What a probe was answered is known with the time when the answer came, not the question."""

from __future__ import annotations

import asyncio

from datum_compute.api.containeroptions import HttpGet, Probe
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.crash_reports import build_crash_report
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import Machine, MachineRecord
from datum_compute.drivers.containers.probes import ProbeRunner

HOST = "127.0.0.1"


async def test_an_answer_that_an_end_cut_off_is_not_the_last_one_of_what_ended() -> None:
    now_s = 1.0
    told = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now_s
        await reader.readuntil(b"\r\n\r\n")
        now_s += 1.0
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        writer.close()

    async def heard(machine: Machine, name: str, good: bool, words: str) -> None:
        told.set()

    server = await asyncio.start_server(answer, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    probe = Probe(http_get=HttpGet(port=port), failure_threshold=1, period_seconds=60)
    plan = MachinePlan(
        containers=[ContainerPlan(name="a", image="web:1", readiness=probe)], addresses=[HOST]
    )
    machine = Machine(
        "ns/web-0/uid", plan, inspected={"a": InspectedContainer("a", "id", "running", None)}
    )
    probing = ProbeRunner(Engine("unused"), heard, heard, lambda: now_s)
    async with server, asyncio.TaskGroup() as group:
        probing.begin(machine, group.create_task)
        await told.wait()
        probing.end(machine)
    words = f"GET http://{HOST}:{port}/: 503"
    assert card_probes(machine, ended_s=1.5) == {}, "it came at 2"
    assert card_probes(machine, ended_s=2.5) == {"readiness probe of a": words}


def card_probes(machine: Machine, ended_s: float) -> dict[str, str]:
    machine.record = MachineRecord(container="a", is_down=True, ended_s=ended_s)
    return build_crash_report(machine, ended_s).probes
