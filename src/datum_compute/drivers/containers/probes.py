"""Runs the probes of machines, and keeps their answers where the machine's state is computed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from datum_compute.api.containeroptions import ExecAction, HttpGet, Probe
from datum_compute.api.instance import ContainerPort
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

_WORDS_MAX = 256
_EAGER_S = 1.0
# Connections of one port check that are opened at the same time.
PORTS_AT_ONCE = 8
# Between tries while the engine cannot run a probe's command.
_ENGINE_RETRY_S = 1.0


class CommandTimeout(TransientError):
    """The command of a probe did not end in time: it hangs, or the engine does."""


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Where a container is found."""

    address: str
    container_id: str
    container: ContainerPlan


async def run_probe(
    probe: Probe,
    delay_s: float,
    check: Callable[[], Awaitable[str]],
    on_verdict: Callable[[bool, str], Awaitable[None]],
    needs_confirmation: Callable[[], bool] = lambda: False,
) -> None:
    """Run the probe until cancelled, for the first time after ``delay_s``.

    ``check`` returns what is wrong, or an empty string. ``on_verdict`` receives the first verdict
    and every change of it: whether it is good, and what was wrong last. An inconclusive check
    (TransientError) is repeated and does not count. If ``needs_confirmation``, the check is run
    once more before it makes the verdict bad, and only its second result counts.
    """
    await asyncio.sleep(delay_s)
    tally = ProbeCounter(probe)
    while True:
        try:
            words = await check()
            if words and tally.is_last_failure() and needs_confirmation():
                words = await check()
        except TransientError:
            await asyncio.sleep(_ENGINE_RETRY_S)
            continue
        verdict = tally.count(is_good=not words)
        if verdict is not None:
            await on_verdict(verdict, words)
        await asyncio.sleep(tally.pause_s())


class ProbeCounter:
    """When answers count. Before the first good one it is asked more often than the period says, so
    that a quick start is seen quickly; bad ones count as if they had come once in a period."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._row = 0  # answers of the same kind in a row, bad ones negative
        self._asked = 0
        self._waited_s = 0.0
        self._was_good = False
        self._verdict: bool | None = None

    def count(self, *, is_good: bool) -> bool | None:
        """The verdict, if this answer changes it."""
        self._asked += 1
        self._row = max(self._row, 0) + 1 if is_good else min(self._row, 0) - 1
        if self._row >= self._probe.success_threshold:
            return self._changed(verdict=True)
        if self._row < 0 and self._is_failed(-self._row):
            return self._changed(verdict=False)
        return None

    def is_last_failure(self) -> bool:
        """Return whether one more bad answer makes the verdict bad."""
        return self._verdict is not False and self._is_failed(1 - min(self._row, 0))

    def _is_failed(self, bad_in_a_row: int) -> bool:
        periods = int(self._waited_s / self._probe.period_seconds) + 1
        failures = bad_in_a_row if self._was_good else periods
        return failures >= self._probe.failure_threshold

    def pause_s(self) -> float:
        """Until the next question."""
        period_s = float(self._probe.period_seconds)
        if not self._was_good:
            period_s = min(period_s, 0.05 * self._asked, _EAGER_S)
            self._waited_s += period_s
        return period_s

    def _changed(self, *, verdict: bool) -> bool | None:
        self._was_good = self._was_good or verdict
        if self._verdict is verdict:
            return None
        self._verdict = verdict
        return verdict


async def check_probe(engine: Engine, probe: Probe, target: ProbeTarget) -> str:
    """Return what is wrong, within the timeout of the probe; empty if nothing is.

    Raises TransientError if the engine does not run the command of the probe, and CommandTimeout
    if the command does not end in time. That time does not include the wait for a turn.
    """
    if probe is PORT_CHECK:  # By identity: a user's probe may have the same values.
        return await _check_ports(target)
    if probe.exec_ is not None:
        return await _command(engine, probe.exec_, target, probe.timeout_seconds)
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            return await _asked(probe, target)
    except TimeoutError:
        return f"no answer within {probe.timeout_seconds:.0f} s"


async def _asked(probe: Probe, target: ProbeTarget) -> str:
    if probe.http_get is not None:
        return await _http(probe.http_get, target)
    if probe.tcp_socket is not None:
        return await _tcp(target.address, resolve_port(target.container, probe.tcp_socket.port))
    return "it asks nothing"


def resolve_port(container: ContainerPlan, port: int | str) -> int:
    """By number or by name; 0 for a name that there is not (admission refuses those)."""
    if isinstance(port, int):
        return port
    return next((p.port for p in container.ports if p.name == port), 0)


async def _tcp(address: str, port: int) -> str:
    error = await _connect(address, port)
    return f"port {port}: {error}" if error else ""


async def _check_ports(target: ProbeTarget) -> str:
    """Return the first port that does not accept a connection, and why; empty if all of them do.

    A user chooses how many ports there are, so only a few are checked at the same time, and none
    after a closed one.
    """
    by_number: dict[int, ContainerPort] = {}
    for port in target.container.checked_ports:
        by_number.setdefault(port.port, port)
    ports = list(by_number.values())
    for first in range(0, len(ports), PORTS_AT_ONCE):
        batch = ports[first : first + PORTS_AT_ONCE]
        answers = await asyncio.gather(*(_check_port(target.address, port) for port in batch))
        if closed := next(filter(None, answers), ""):
            return closed
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
    """Return why a connection failed. asyncio puts the address in place of the system's text."""
    return os.strerror(error.errno).lower() if error.errno else "no connection"


async def _http(question: HttpGet, target: ProbeTarget) -> str:
    port = resolve_port(target.container, question.port)
    shown = f"[{target.address}]" if ":" in target.address else target.address
    asked = f"GET http://{shown}:{port}{question.path}"
    try:
        reader, writer = await connect_on_link(target.address, port)
    except OSError as error:
        return f"{asked}: {_connect_error(error)}"
    try:
        headers = {"host": f"{shown}:{port}", "user-agent": "datum-probe", "connection": "close"}
        headers |= {header.name.lower(): header.value for header in question.http_headers}
        lines = [f"GET {question.path} HTTP/1.1", *(f"{n}: {v}" for n, v in headers.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        first = (await reader.readline()).decode(errors="replace").split(maxsplit=2)
    except (OSError, ValueError) as error:
        return f"{asked}: the connection was lost ({type(error).__name__})"
    finally:
        writer.close()
    if len(first) < 2 or not first[0].startswith("HTTP/"):
        return f"{asked}: no HTTP answer"
    return "" if first[1].isdigit() and 200 <= int(first[1]) < 400 else f"{asked}: {first[1]}"


async def _command(
    engine: Engine, action: ExecAction, target: ProbeTarget, timeout_s: float
) -> str:
    try:
        code, said = await run_command(engine, target.container_id, action.command, timeout_s)
    except EngineError as refusal:
        return refusal.message[:_WORDS_MAX]
    except TransientError:
        raise
    except DriverError as error:
        return str(error)[:_WORDS_MAX]
    words = f": {said[:_WORDS_MAX]}" if said else ""
    return "" if code == 0 else f"{action.command[0]} ended with code {code}{words}"


async def run_command(
    engine: Engine, container_id: str, command: list[str], timeout_s: float = REQUEST_TIMEOUT_S
) -> tuple[int, str]:
    """Return exit code and last line of output of a command in the container. Raises CommandTimeout
    if it has not ended ``timeout_s`` after the engine was asked to start it."""
    made = await engine.request(
        "POST",
        f"/containers/{container_id}/exec",
        body={"Cmd": command, "AttachStdout": True, "AttachStderr": True},
    )
    start = f"/exec/{made['Id']}/start"
    last = LastLines(1)
    try:
        await engine.read_into(
            last.feed, "POST", start, body={"Detach": False}, timeout_s=timeout_s
        )
    except EngineTimeout:
        raise CommandTimeout(f"no answer within {timeout_s:.0f} s") from None
    ended = await engine.request("GET", f"/exec/{made['Id']}/json")
    return int(ended.get("ExitCode") or 0), "".join(last.texts())


Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# Machine, container, whether the verdict is good, and what was wrong last.
OnVerdict = Callable[[Machine, str, bool, str], Awaitable[None]]

_ANSWERS_MAX = 20

_log = logging.getLogger(__name__)


class ProbeRunner:
    """Runs probes and passes on their results.

    ``on_ready_verdict`` and ``on_live_verdict`` receive the first verdict of a check and every
    change of it. ``on_early_failure`` receives the machine when a readiness check fails before its
    first verdict. ``confirm_engine`` raises TransientError if the engine does not answer: then a
    command that did not end in time proves nothing about its container.
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
        """Run every probe of every container, for the start that the container has now."""
        for container in machine.plan.containers:
            start = machine.inspected[container.name].started_at
            for kind, probe in (("ready", container.readiness_check), ("live", container.liveness)):
                key = (container.name, kind)
                known = machine.probe_tasks.get(key)
                if probe is None or (known is not None and known[0] == start):
                    continue
                if known is not None:
                    known[1].cancel()
                asking = self._asking(machine, container.name, kind, probe)
                machine.probe_tasks[key] = (start, spawn(asking))

    def end(self, machine: Machine) -> None:
        for _, task in machine.probe_tasks.values():
            if task is not asyncio.current_task():
                task.cancel()
        machine.probe_tasks.clear()
        machine.readiness.clear()
        machine.readiness_failures.clear()

    async def _asking(self, machine: Machine, name: str, kind: str, probe: Probe) -> None:
        container = next(c for c in machine.plan.containers if c.name == name)
        title = readiness_check_title(container) if kind == "ready" else f"liveness probe of {name}"

        is_timeout = False

        async def asked() -> str:
            nonlocal is_timeout
            is_timeout = False
            target = _target(machine, container)
            try:
                words = (
                    await check_probe(self._engine, probe, target)
                    if target
                    else "the machine has no address"
                )
            except CommandTimeout as timeout:
                await self._confirm_engine()
                words, is_timeout = str(timeout), True
            answers = machine.probe_results.setdefault(title, [])
            answers.append((self._unix_s(), words or "all is well"))
            del answers[:-_ANSWERS_MAX]
            if words and kind == "ready" and name not in machine.readiness:
                machine.readiness_failures[name] = words
                self._on_early_failure(machine)
            return words

        # Thawed processes continue where they were, so their first probe runs at once.
        left_s = remaining_delay_s(probe, machine.inspected[name], self._unix_s())
        delay_s = 0.0 if machine.sleep.was_unpaused else left_s
        told = partial(self._on_verdict[kind], machine, name)
        try:
            # An engine that hung and has just come back answers the ping, although the command
            # timed out because of it. So one more attempt confirms a timeout that would count.
            await run_probe(probe, delay_s, asked, told, lambda: is_timeout)
        except Exception:  # in the group of all machines it would end everything else too
            _log.exception("%s: the %s failed", machine.id, title)


def _target(machine: Machine, container: ContainerPlan) -> ProbeTarget | None:
    """Return where the container is now: the engine may assign an address with each start."""
    addresses = machine.plan.addresses or machine.inspected[machine.container_names[0]].addresses
    if not addresses:
        return None
    return ProbeTarget(addresses[0], machine.inspected[container.name].id, container)
