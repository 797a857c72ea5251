"""Readiness and liveness probes of containers.

- A probe is an HTTP request, a TCP connection, a command, or the check of all TCP ports of a
  container without a readiness probe.
- Before its first success a probe runs more often than its period, so that a quick start is
  detected early. Failures then count as if there had been one in each period.
- If the engine does not respond, the result of a command proves nothing about its container. Such a
  result does not count.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from datum_compute.api.compute.instance import ContainerPort, ExecAction, HttpGet, Probe
from datum_compute.drivers.container_defaults import PORT_CHECK, render_closed_port
from datum_compute.drivers.containers.container_spec import ContainerPlan
from datum_compute.drivers.containers.engine import (
    REQUEST_TIMEOUT_S,
    Engine,
    EngineError,
    EngineTimeout,
)
from datum_compute.drivers.containers.machine import Machine, remaining_delay_s
from datum_compute.drivers.containers.status import readiness_check_title
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.local_network import connect_on_link
from datum_compute.drivers.logs import LastLines

CONCURRENT_PORT_CHECKS_MAX = 8  # of one container
# Pause before the first success: it grows with each attempt up to the maximum.
_EARLY_PAUSE_STEP_S, _EARLY_PAUSE_MAX_S = 0.05, 1.0
# Pause after a result that does not count.
_INCONCLUSIVE_PAUSE_S = 1.0
_OUTPUT_CHARACTERS_MAX = 256
_RESULTS_MAX = 20

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# Machine, container, whether the verdict is good, and the last failure.
OnVerdict = Callable[[Machine, str, bool, str], Awaitable[None]]

_log = logging.getLogger(__name__)


class CommandTimeout(TransientError):
    """The command of a probe did not end in time: either it or the engine hangs."""


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    address: str
    container_id: str
    container: ContainerPlan


# --- scheduling


class ProbeRunner:
    """Runs the probes of machines and reports their verdicts.

    ``on_ready_verdict`` and ``on_live_verdict`` receive the first verdict of a probe and every
    change of it. ``on_early_failure`` receives the machine when a readiness check fails before its
    first verdict. ``confirm_engine`` raises TransientError if the engine does not respond.
    """

    def __init__(
        self,
        engine: Engine,
        on_ready_verdict: OnVerdict,
        on_live_verdict: OnVerdict,
        unix_s: Callable[[], float],
        *,
        confirm_engine: Callable[[], Awaitable[None]] | None = None,
        on_early_failure: Callable[[Machine], None] = lambda _machine: None,
    ) -> None:
        self._on_early_failure = on_early_failure
        self._unix_s = unix_s
        self._confirm_engine = confirm_engine or engine.ping
        self._engine = engine
        self._on_verdict = {"ready": on_ready_verdict, "live": on_live_verdict}

    def begin(self, machine: Machine, spawn: Spawn) -> None:
        """Run every probe of every container, unless it runs for the current start already."""
        for container in machine.plan.containers:
            start = machine.inspected[container.name].started_at
            for kind, probe in (("ready", container.readiness_check), ("live", container.liveness)):
                key = (container.name, kind)
                existing = machine.probe_tasks.get(key)
                if probe is None or (existing is not None and existing[0] == start):
                    continue
                if existing is not None:
                    existing[1].cancel()
                work = self._run(machine, container, kind, probe)
                machine.probe_tasks[key] = (start, spawn(work))

    def end(self, machine: Machine) -> None:
        for _, task in machine.probe_tasks.values():
            if task is not asyncio.current_task():
                task.cancel()
        machine.probe_tasks.clear()
        machine.readiness.clear()
        machine.readiness_failures.clear()

    async def _run(
        self, machine: Machine, container: ContainerPlan, kind: str, probe: Probe
    ) -> None:
        name = container.name
        is_readiness = kind == "ready"
        title = readiness_check_title(container) if is_readiness else f"liveness probe of {name}"
        is_timeout = False

        async def check() -> str:
            nonlocal is_timeout
            is_timeout = False
            try:
                failure = await self._check(machine, container, probe)
            except CommandTimeout as timeout:
                await self._confirm_engine()
                failure, is_timeout = str(timeout), True
            self._record_result(machine, title, failure)
            if failure and is_readiness and name not in machine.readiness:
                machine.readiness_failures[name] = failure
                self._on_early_failure(machine)
            return failure

        # Unpaused processes continue where they were, so their first probe runs immediately.
        left_s = remaining_delay_s(probe, machine.inspected[name], self._unix_s())
        delay_s = 0.0 if machine.sleep.was_unpaused else left_s
        on_verdict = partial(self._on_verdict[kind], machine, name)
        try:
            # An engine that hung and has just recovered answers the ping, although it caused the
            # timeout. So a timeout that would make the verdict bad is confirmed by another attempt.
            await run_probe(probe, delay_s, check, on_verdict, lambda: is_timeout)
        except Exception:  # an error of a task would end all tasks of the driver
            _log.exception("%s: the %s failed", machine.id, title)

    async def _check(self, machine: Machine, container: ContainerPlan, probe: Probe) -> str:
        # The engine may assign another address with each start.
        addresses = (
            machine.plan.addresses or machine.inspected[machine.container_names[0]].addresses
        )
        if not addresses:
            return "the machine has no address"
        container_id = machine.inspected[container.name].id
        return await check_probe(
            self._engine, probe, ProbeTarget(addresses[0], container_id, container)
        )

    def _record_result(self, machine: Machine, title: str, failure: str) -> None:
        results = machine.probe_results.setdefault(title, [])
        results.append((self._unix_s(), failure or "succeeded"))
        del results[:-_RESULTS_MAX]


async def run_probe(
    probe: Probe,
    delay_s: float,
    check: Callable[[], Awaitable[str]],
    on_verdict: Callable[[bool, str], Awaitable[None]],
    needs_confirmation: Callable[[], bool] = lambda: False,
) -> None:
    """Run the probe until cancelled, for the first time after ``delay_s``.

    ``check`` returns the failure, or an empty string. ``on_verdict`` receives the first verdict
    and every change of it: whether it is good, and the last failure. An inconclusive check
    (TransientError) is repeated and does not count. If ``needs_confirmation``, the check is run
    once more before it makes the verdict bad, and only its second result counts.
    """
    await asyncio.sleep(delay_s)
    counter = ProbeCounter(probe)
    while True:
        try:
            failure = await check()
            if failure and counter.is_last_failure() and needs_confirmation():
                failure = await check()
        except TransientError:
            await asyncio.sleep(_INCONCLUSIVE_PAUSE_S)
            continue
        verdict = counter.add_result(is_good=not failure)
        if verdict is not None:
            await on_verdict(verdict, failure)
        await asyncio.sleep(counter.next_pause_s())


class ProbeCounter:
    """Counts the results of a probe, and decides when they change its verdict."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._streak = 0  # equal results in a row, failures negative
        self._attempts = 0
        self._waited_s = 0.0  # before the first success
        self._has_succeeded = False
        self._verdict: bool | None = None

    def add_result(self, *, is_good: bool) -> bool | None:
        """Return the verdict if this result changes it."""
        self._attempts += 1
        self._streak = max(self._streak, 0) + 1 if is_good else min(self._streak, 0) - 1
        if self._streak >= self._probe.success_threshold:
            return self._set_verdict(verdict=True)
        if self._streak < 0 and self._is_failed(-self._streak):
            return self._set_verdict(verdict=False)
        return None

    def is_last_failure(self) -> bool:
        """Return whether one more failure makes the verdict bad."""
        return self._verdict is not False and self._is_failed(1 - min(self._streak, 0))

    def _is_failed(self, failures_in_a_row: int) -> bool:
        periods = int(self._waited_s / self._probe.period_seconds) + 1
        failures = failures_in_a_row if self._has_succeeded else periods
        return failures >= self._probe.failure_threshold

    def next_pause_s(self) -> float:
        period_s = float(self._probe.period_seconds)
        if not self._has_succeeded:
            early_pause_s = min(_EARLY_PAUSE_STEP_S * self._attempts, _EARLY_PAUSE_MAX_S)
            period_s = min(period_s, early_pause_s)
            self._waited_s += period_s
        return period_s

    def _set_verdict(self, *, verdict: bool) -> bool | None:
        self._has_succeeded = self._has_succeeded or verdict
        if self._verdict is verdict:
            return None
        self._verdict = verdict
        return verdict


# --- checks


async def check_probe(engine: Engine, probe: Probe, target: ProbeTarget) -> str:
    """Return the failure, within the timeout of the probe; empty for a success.

    Raises TransientError if the engine does not run the command of the probe, and CommandTimeout
    if the command does not end in time. That time does not include the wait for a request slot.
    """
    if probe is PORT_CHECK:  # By identity: a user's probe may have the same values.
        return await _check_ports(target)
    if probe.exec_ is not None:
        return await _check_command(engine, probe.exec_, target, probe.timeout_seconds)
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            return await _check_connection(probe, target)
    except TimeoutError:
        return f"no answer within {probe.timeout_seconds:.0f} s"


async def _check_connection(probe: Probe, target: ProbeTarget) -> str:
    if probe.http_get is not None:
        return await _check_http(probe.http_get, target)
    if probe.tcp_socket is not None:
        return await _check_tcp(target, probe.tcp_socket.port)
    return "the probe has no action"


def resolve_port(container: ContainerPlan, port: int | str) -> int:
    """Return the number of a port; 0 for an unknown name, which admission rejects."""
    if isinstance(port, int):
        return port
    return next((p.port for p in container.ports if p.name == port), 0)


async def _check_tcp(target: ProbeTarget, port: int | str) -> str:
    number = resolve_port(target.container, port)
    error = await _connect(target.address, number)
    return f"port {number}: {error}" if error else ""


async def _check_ports(target: ProbeTarget) -> str:
    """Return the first port that does not accept a connection, and why; empty if all of them do.

    A user chooses how many ports there are, so only a few are checked at the same time, and none
    after a closed one.
    """
    by_number: dict[int, ContainerPort] = {}
    for port in target.container.ports_to_check:
        by_number.setdefault(port.port, port)
    ports = list(by_number.values())
    for first in range(0, len(ports), CONCURRENT_PORT_CHECKS_MAX):
        batch = ports[first : first + CONCURRENT_PORT_CHECKS_MAX]
        failures = await asyncio.gather(*(_check_port(target.address, port) for port in batch))
        if failure := next(filter(None, failures), ""):
            return failure
    return ""


async def _check_port(address: str, port: ContainerPort) -> str:
    timeout_s = PORT_CHECK.timeout_seconds
    try:
        async with asyncio.timeout(timeout_s):
            error = await _connect(address, port.port)
    except TimeoutError:
        error = f"no answer within {timeout_s} s"
    return render_closed_port(port.port, port.name, error) if error else ""


async def _connect(address: str, port: int) -> str:
    """Connect and disconnect; return why that failed, empty if it succeeded."""
    try:
        _, writer = await connect_on_link(address, port)
    except OSError as error:
        return _connect_error(error)
    writer.close()
    return ""


def _connect_error(error: OSError) -> str:
    """Return why a connection failed. asyncio replaces the system's error text by the address."""
    return os.strerror(error.errno).lower() if error.errno else "no connection"


async def _check_http(action: HttpGet, target: ProbeTarget) -> str:
    port = resolve_port(target.container, action.port)
    host = f"[{target.address}]" if ":" in target.address else target.address
    request = f"GET http://{host}:{port}{action.path}"
    try:
        reader, writer = await connect_on_link(target.address, port)
    except OSError as error:
        return f"{request}: {_connect_error(error)}"
    try:
        headers = {"host": f"{host}:{port}", "user-agent": "datum-probe", "connection": "close"}
        headers |= {header.name.lower(): header.value for header in action.http_headers}
        lines = [f"GET {action.path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        first = (await reader.readline()).decode(errors="replace").split(maxsplit=2)
    except (OSError, ValueError) as error:
        return f"{request}: the connection was lost ({type(error).__name__})"
    finally:
        writer.close()
    if len(first) < 2 or not first[0].startswith("HTTP/"):
        return f"{request}: not an HTTP response"
    return "" if first[1].isdigit() and 200 <= int(first[1]) < 400 else f"{request}: {first[1]}"


async def _check_command(
    engine: Engine, action: ExecAction, target: ProbeTarget, timeout_s: float
) -> str:
    try:
        code, output = await run_command(engine, target.container_id, action.command, timeout_s)
    except EngineError as error:
        return error.message[:_OUTPUT_CHARACTERS_MAX]
    except TransientError:
        raise
    except DriverError as error:
        return str(error)[:_OUTPUT_CHARACTERS_MAX]
    shown = f": {output[:_OUTPUT_CHARACTERS_MAX]}" if output else ""
    return "" if code == 0 else f"{action.command[0]} exited with code {code}{shown}"


async def run_command(
    engine: Engine, container_id: str, command: list[str], timeout_s: float = REQUEST_TIMEOUT_S
) -> tuple[int, str]:
    """Return exit code and last line of output of a command in the container.

    Raises CommandTimeout if it has not ended ``timeout_s`` after the request to start it.
    """
    created = await engine.request(
        "POST",
        f"/containers/{container_id}/exec",
        body={"Cmd": command, "AttachStdout": True, "AttachStderr": True},
    )
    start = f"/exec/{created['Id']}/start"
    last = LastLines(1)
    try:
        await engine.read_into(
            last.feed, "POST", start, body={"Detach": False}, timeout_s=timeout_s
        )
    except EngineTimeout:
        raise CommandTimeout(f"no answer within {timeout_s:.0f} s") from None
    result = await engine.request("GET", f"/exec/{created['Id']}/json")
    return int(result.get("ExitCode") or 0), "".join(last.texts())
