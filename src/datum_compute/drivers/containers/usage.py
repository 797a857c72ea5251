"""How much of the host a machine uses now: what the engine counts, at two moments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.api.codec import JsonObject
from datum_compute.api.timestamps import unix_time
from datum_compute.drivers.containers.engine import EngineError
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.queries import Usage

APART_S = 0.5


@dataclass(frozen=True, slots=True)
class UsageSample:
    at_s: float
    cpu_ns: int
    memory_bytes: int
    limit_bytes: int


async def read_usage(operations: ContainerOperations, machine: Machine) -> Usage | None:
    """None of one that does not run; one that sleeps uses nothing, which is worth knowing."""
    names = [container.name for container in machine.inspected.values() if container.is_up]
    if not names:
        return Usage(asleep=True) if machine.record.sleep_mode else None
    before = await asyncio.gather(*(_sample(operations, machine, name) for name in names))
    await asyncio.sleep(APART_S)
    after = await asyncio.gather(*(_sample(operations, machine, name) for name in names))
    usage = compute_usage(before, after)
    return msgspec.structs.replace(usage, asleep=bool(machine.record.sleep_mode))


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """What a machine uses; the processor is known from the second look on."""

    memory_bytes: int
    limit_bytes: int
    cpu_cores: float | None = None


class UsageMeter:
    """What every machine uses, from one look to the next."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], UsageSample] = {}

    async def read(
        self, operations: ContainerOperations, machines: Iterable[Machine]
    ) -> dict[str, MachineUsage]:
        """One after the other: the engine has other things to do. Who goes is forgotten."""
        found: dict[str, MachineUsage] = {}
        samples: dict[tuple[str, str], UsageSample] = {}
        for machine in machines:
            own = {}
            for name in [
                container.name for container in machine.inspected.values() if container.is_up
            ]:
                sample = await _sample(operations, machine, name)
                if sample is not None:
                    own[machine.id, name] = sample
            if own:
                found[machine.id] = machine_usage(own, self._last)
                samples |= own
        self._last = samples
        return found


def machine_usage(
    now: Mapping[tuple[str, str], UsageSample], last: Mapping[tuple[str, str], UsageSample]
) -> MachineUsage:
    """Of the containers of one machine. One that has started anew counts from nothing."""
    pairs = [(last[key], sample) for key, sample in now.items() if key in last]
    cores = [max(0, _millicores(before, after)) / 1000 for before, after in pairs]
    return MachineUsage(
        memory_bytes=sum(sample.memory_bytes for sample in now.values()),
        limit_bytes=sum(sample.limit_bytes for sample in now.values()),
        cpu_cores=sum(cores) if len(pairs) == len(now) else None,
    )


def compute_usage(before: list[UsageSample | None], after: list[UsageSample | None]) -> Usage:
    """One that went in between counts no more."""
    pairs = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    mebibyte = 1024 * 1024
    return Usage(
        cpu_millicores=sum(_millicores(b, a) for b, a in pairs),
        memory_mebibytes=sum(a.memory_bytes for _, a in pairs) // mebibyte,
        memory_limit_mebibytes=sum(a.limit_bytes for _, a in pairs) // mebibyte,
    )


def _millicores(before: UsageSample, after: UsageSample) -> int:
    passed_s = after.at_s - before.at_s
    return round((after.cpu_ns - before.cpu_ns) / passed_s / 1_000_000) if passed_s > 0 else 0


async def _sample(
    operations: ContainerOperations, machine: Machine, name: str
) -> UsageSample | None:
    query = {"stream": "false", "one-shot": "true"}
    path = f"{operations.container_path(machine, name)}/stats"
    try:
        return parse_sample(await operations.engine.request("GET", path, query))
    except EngineError:
        return None


def parse_sample(found: JsonObject | None) -> UsageSample | None:
    if not found:
        return None
    memory = found.get("memory_stats") or {}
    return UsageSample(
        at_s=unix_time(str(found.get("read", ""))),
        cpu_ns=int((found.get("cpu_stats") or {}).get("cpu_usage", {}).get("total_usage", 0)),
        memory_bytes=int(memory.get("usage", 0)),
        limit_bytes=int(memory.get("limit", 0)),
    )
