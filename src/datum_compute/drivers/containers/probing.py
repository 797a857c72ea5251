"""Runs the probes of machines, and keeps their answers where the machine's state is computed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from datum_compute.api.containeroptions import Probe
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.machine import Machine, delay_left_s
from datum_compute.drivers.containers.plan import ContainerPlan
from datum_compute.drivers.containers.probes import CommandTimeout, Target, answer_to, run_probe
from datum_compute.drivers.containers.state import check_title

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# Machine, container, whether the verdict is good, and what was wrong last.
OnVerdict = Callable[[Machine, str, bool, str], Awaitable[None]]

_ANSWERS_MAX = 20

_log = logging.getLogger(__name__)


class Probing:
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
            start = machine.seen[container.name].started_at
            for kind, probe in (("ready", container.readiness_check), ("live", container.liveness)):
                key = (container.name, kind)
                known = machine.probing.get(key)
                if probe is None or (known is not None and known[0] == start):
                    continue
                if known is not None:
                    known[1].cancel()
                asking = self._asking(machine, container.name, kind, probe)
                machine.probing[key] = (start, spawn(asking))

    def end(self, machine: Machine) -> None:
        for _, task in machine.probing.values():
            if task is not asyncio.current_task():
                task.cancel()
        machine.probing.clear()
        machine.ready.clear()
        machine.words.clear()

    async def _asking(self, machine: Machine, name: str, kind: str, probe: Probe) -> None:
        container = next(c for c in machine.plan.containers if c.name == name)
        title = check_title(container) if kind == "ready" else f"liveness probe of {name}"

        is_timeout = False

        async def asked() -> str:
            nonlocal is_timeout
            is_timeout = False
            target = _target(machine, container)
            try:
                words = (
                    await answer_to(self._engine, probe, target)
                    if target
                    else "the machine has no address"
                )
            except CommandTimeout as timeout:
                await self._confirm_engine()
                words, is_timeout = str(timeout), True
            answers = machine.answered.setdefault(title, [])
            answers.append((self._unix_s(), words or "all is well"))
            del answers[:-_ANSWERS_MAX]
            if words and kind == "ready" and name not in machine.ready:
                machine.words[name] = words
                self._on_early_failure(machine)
            return words

        # Thawed processes continue where they were, so their first probe runs at once.
        left_s = delay_left_s(probe, machine.seen[name], self._unix_s())
        delay_s = 0.0 if machine.sleep.thawed else left_s
        told = partial(self._on_verdict[kind], machine, name)
        try:
            # An engine that hung and has just come back answers the ping, although the command
            # timed out because of it. So one more attempt confirms a timeout that would count.
            await run_probe(probe, delay_s, asked, told, lambda: is_timeout)
        except Exception:  # in the group of all machines it would end everything else too
            _log.exception("%s: the %s failed", machine.id, title)


def _target(machine: Machine, container: ContainerPlan) -> Target | None:
    """Return where the container is now: the engine may assign an address with each start."""
    addresses = machine.plan.addresses or machine.seen[machine.containers[0]].addresses
    if not addresses:
        return None
    return Target(addresses[0], machine.seen[container.name].id, container)
