"""Which container engine of the host is used."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from datum_compute.app.container_host import ANSWER_S, FoundEngine, find_engine
from datum_compute.app.state_directory import StateError
from datum_compute.drivers.containers.engine import Engine, EngineTimeout, EngineVersion
from datum_compute.drivers.driver import TransientError
from testkit.sim.loop import VirtualLoop, run_virtual

# Seconds after which an engine answers; None if it does not exist.
AFTER_S = {"missing": None, "slow": 25.0, "fast": 0.1, "hung": 1e6}


class TimedEngine(Engine):
    """An engine in virtual time, named by its socket."""

    async def read_version(self, timeout_s: float = 5.0) -> EngineVersion:
        after_s = AFTER_S[self.socket]
        if after_s is None:
            raise TransientError("no such file or directory")
        if after_s > timeout_s:
            await asyncio.sleep(timeout_s)
            raise EngineTimeout(f"no answer within {timeout_s:g} s")
        await asyncio.sleep(after_s)
        return EngineVersion(self.socket, "1")


def found(*sockets: str) -> tuple[FoundEngine, float]:
    """Return the engine that is found, and after how many seconds."""

    async def main(loop: VirtualLoop) -> tuple[FoundEngine, float]:
        return await find_engine(sockets, TimedEngine), loop.time()

    return run_virtual(Random(1), main)


def test_an_engine_that_answers_slowly_is_found() -> None:
    engine, _ = found("missing", "slow")
    assert engine.facts == EngineVersion("slow", "1")


def test_the_first_engine_that_answers_is_used() -> None:
    assert found("slow", "fast")[0].socket == "slow"
    engine, after_s = found("hung", "fast")
    assert engine.socket == "fast"
    assert after_s <= ANSWER_S


def test_without_an_answer_every_socket_is_listed_with_the_time_that_it_had() -> None:
    with pytest.raises(StateError) as refused:
        found("missing", "hung")
    assert "missing: no such file or directory; hung: no answer within 30 s" in str(refused.value)
