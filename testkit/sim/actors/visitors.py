"""Visitors: clients that connect to the published ports of cells.

I27: a connection is served within a bound, the machine of an open connection is not put to sleep,
and a machine is not woken twice concurrently. I27 is checked only if the process of the cell, its
provider and the machine were available all the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datum_compute.api.planes import PlaneName, cell_plane
from datum_compute.api.traffic import Backend
from datum_compute.ingress.balancer import HOLD_S, BackendConnection, PublishedPort
from testkit.sim.checks.state import ClusterState
from testkit.sim.host import SimulatedHost
from testkit.sim.scenario.operations import Visit
from testkit.sim.scenario.scenario import Scenario, host_of_cell
from testkit.sim.traffic import SimulatedTraffic

# Waking a stopped machine also takes its grace period; the rest is for scheduling.
BOUND_S = HOLD_S + 35.0
_CHECK_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Visitors:
    hosts: Mapping[str, SimulatedHost]
    state: ClusterState
    report_violation: Callable[[str], None]
    count: Callable[[str], None]

    async def run(self, scenario: Scenario) -> None:
        async with asyncio.TaskGroup() as group:
            for visit in scenario.operations:
                if isinstance(visit, Visit):
                    host = self.hosts[host_of_cell(scenario.layout, visit.cell)]
                    for number in range(visit.count):
                        group.create_task(self._visit(visit, number, host))

    @property
    def now(self) -> Callable[[], float]:
        return self.state.now

    async def _visit(self, visit: Visit, number: int, host: SimulatedHost) -> None:
        await asyncio.sleep(max(0.0, visit.at_s + number * visit.apart_s - self.now()))
        cell = cell_plane(visit.cell)
        if not host.is_up or host.traffic is None or not host.traffic.ports_of(cell):
            return
        ports = host.traffic.ports_of(cell)
        host.spawn(self._connection(visit, host, host.traffic, ports[visit.pick % len(ports)]))

    async def _connection(
        self, visit: Visit, host: SimulatedHost, traffic: SimulatedTraffic, port: PublishedPort
    ) -> None:
        """Open one connection. It runs in a task of the host and ends with the host."""
        cell, started_s, backends = cell_plane(visit.cell), self.now(), port.backends
        opened = await traffic.connect(port)
        took_s = self.now() - started_s
        for machine_id in self.state.providers[cell].overlaps:
            self.report_violation(f"I27: {machine_id} was woken twice concurrently")
        if opened is None or took_s > BOUND_S:
            if any(
                self._was_available(cell, backend, started_s) and backend in port.backends
                for backend in backends
            ):
                self.report_violation(
                    f"I27: a connection to {visit.cell} was not served in {took_s:.1f} s"
                )
            return
        self.count("visit served")
        await self._stay_connected(visit, traffic, opened)

    async def _stay_connected(
        self, visit: Visit, traffic: SimulatedTraffic, opened: BackendConnection[Backend]
    ) -> None:
        backend, until_s = opened.connection, self.now() + visit.stays_s
        traffic.balancer.record_first_byte(opened)
        provider = self.state.providers[backend.cell]
        connected_to = provider.alive().get(backend.machine_id)
        while True:
            machine = provider.alive().get(backend.machine_id)
            if machine is None or connected_to is None or machine.number != connected_to.number:
                break  # the machine was lost, and its connections with it
            is_stopped = machine.suspended_from_s is not None
            if is_stopped or machine.runs_from_s != connected_to.runs_from_s:
                break  # the machine was stopped on request, and perhaps started again
            if machine.gone_from_s is None and not traffic.runs(backend):
                self.report_violation(f"I27: {backend.machine_id} sleeps under an open connection")
            if self.now() >= until_s:
                break
            await asyncio.sleep(min(_CHECK_INTERVAL_S, max(0.0, until_s - self.now())))
        traffic.balancer.release(opened)

    def _was_available(self, cell: PlaneName, backend: Backend, since_s: float) -> bool:
        """Return True if the machine existed all the time, and its provider answered correctly."""
        provider = self.state.providers[cell]
        machine = provider.alive().get(backend.machine_id)
        is_correct_now = not provider.away and provider.lie is None
        is_correct_since_start = provider.correct_since_s < provider.now() - (self.now() - since_s)
        exists = machine is not None and machine.gone_from_s is None
        return exists and is_correct_now and is_correct_since_start
