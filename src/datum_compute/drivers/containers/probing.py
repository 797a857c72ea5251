"""Keeps the probes of machines going, and what they say where the machine's state is made of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from datum_compute.api.containeroptions import Probe
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.machine import Machine, delay_left_s
from datum_compute.drivers.containers.probes import Target, answer_to, keep_asking
from datum_compute.drivers.driver import TransientError

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
# Machine, container, whether the answer was good, and its words.
Told = Callable[[Machine, str, bool, str], Awaitable[None]]

_ANSWERS_MAX = 20
_TITLES = {"ready": "readiness", "live": "liveness"}

_log = logging.getLogger(__name__)


class Probing:
    """``heard_ready`` and ``heard_live`` receive each verdict that changes what is known. While
    ``engine_answers`` is False a command that does not end proves nothing."""

    def __init__(
        self,
        engine: Engine,
        heard_ready: Told,
        heard_live: Told,
        unix_s: Callable[[], float],
        engine_answers: Callable[[], bool] = lambda: True,
    ) -> None:
        self._unix_s = unix_s
        self._engine_answers = engine_answers
        self._engine = engine
        self._heard = {"ready": heard_ready, "live": heard_live}

    def begin(self, machine: Machine, spawn: Spawn) -> None:
        """Every probe of every container runs, for the start that the container has now."""
        for container in machine.plan.containers:
            start = machine.seen[container.name].started_at
            for kind, probe in (("ready", container.readiness), ("live", container.liveness)):
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
        seen = machine.seen[name]
        container = next(c for c in machine.plan.containers if c.name == name)
        address = (machine.plan.addresses or list(machine.seen[machine.containers[0]].addresses))[0]
        target = Target(address, seen.id, container)
        title = f"{_TITLES[kind]} probe of {name}"

        async def asked() -> str:
            words = await answer_to(self._engine, probe, target)
            if words and probe.exec_ is not None and not self._engine_answers():
                raise TransientError(words)
            answers = machine.answered.setdefault(title, [])
            answers.append((self._unix_s(), words or "all is well"))
            del answers[:-_ANSWERS_MAX]
            return words

        # Thawed processes continue where they were, so their first probe runs at once.
        delay_s = 0.0 if machine.sleep.thawed else delay_left_s(probe, seen, self._unix_s())
        try:
            await keep_asking(probe, delay_s, asked, partial(self._heard[kind], machine, name))
        except Exception:  # in the group of all machines it would end everything else too
            _log.exception("%s: the %s failed", machine.id, title)
