"""CPU and memory usage of machines, from samples of the engine's counters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import unix_time
from datum_compute.drivers.containers.engine import EngineError
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.queries import Usage

SAMPLE_INTERVAL_S = 0.5
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class UsageSample:
    at_s: float
    cpu_ns: int
    memory_bytes: int
    limit_bytes: int


async def read_usage(operations: ContainerOperations, machine: Machine) -> Usage | None:
    """Return the usage between two samples; None if the machine neither runs nor sleeps."""
    names = _running_containers(machine)
    if not names:
        return Usage(asleep=True) if machine.record.sleep_mode else None
    before = await asyncio.gather(*(_read_sample(operations, machine, name) for name in names))
    await asyncio.sleep(SAMPLE_INTERVAL_S)
    after = await asyncio.gather(*(_read_sample(operations, machine, name) for name in names))
    usage = compute_usage(before, after)
    return msgspec.structs.replace(usage, asleep=bool(machine.record.sleep_mode))


@dataclass(frozen=True, slots=True)
class MachineUsage:
    """``cpu_cores`` is None in the first measurement of a container."""

    memory_bytes: int
    limit_bytes: int
    cpu_cores: float | None = None


class UsageMeter:
    """Measures the usage of all machines since the last measurement."""

    def __init__(self) -> None:
        # By machine and container. Containers that are gone are dropped.
        self._last: dict[tuple[str, str], UsageSample] = {}

    async def measure(
        self, operations: ContainerOperations, machines: Iterable[Machine]
    ) -> dict[str, MachineUsage]:
        """Return the usage of each machine that runs, by its id.

        The containers are read one after the other, to leave request slots for other work.
        """
        usage: dict[str, MachineUsage] = {}
        samples: dict[tuple[str, str], UsageSample] = {}
        for machine in machines:
            own = {}
            for name in _running_containers(machine):
                sample = await _read_sample(operations, machine, name)
                if sample is not None:
                    own[machine.id, name] = sample
            if own:
                usage[machine.id] = machine_usage(own, self._last)
                samples |= own
        self._last = samples
        return usage


def machine_usage(
    now: Mapping[tuple[str, str], UsageSample], last: Mapping[tuple[str, str], UsageSample]
) -> MachineUsage:
    """Return the usage of the containers of one machine.

    The counters of a restarted container start at 0: its usage counts as 0 once.
    """
    pairs = [(last[key], sample) for key, sample in now.items() if key in last]
    cores = [max(0, _millicores(before, after)) / 1000 for before, after in pairs]
    return MachineUsage(
        memory_bytes=sum(sample.memory_bytes for sample in now.values()),
        limit_bytes=sum(sample.limit_bytes for sample in now.values()),
        cpu_cores=sum(cores) if len(pairs) == len(now) else None,
    )


def compute_usage(before: list[UsageSample | None], after: list[UsageSample | None]) -> Usage:
    """Return the usage of the containers that have both samples."""
    pairs = [(b, a) for b, a in zip(before, after, strict=True) if b is not None and a is not None]
    return Usage(
        cpu_millicores=sum(_millicores(b, a) for b, a in pairs),
        memory_mebibytes=sum(a.memory_bytes for _, a in pairs) // _MEBIBYTE,
        memory_limit_mebibytes=sum(a.limit_bytes for _, a in pairs) // _MEBIBYTE,
    )


def _millicores(before: UsageSample, after: UsageSample) -> int:
    elapsed_s = after.at_s - before.at_s
    return round((after.cpu_ns - before.cpu_ns) / elapsed_s / 1_000_000) if elapsed_s > 0 else 0


def _running_containers(machine: Machine) -> list[str]:
    return [container.name for container in machine.inspected.values() if container.is_up]


async def _read_sample(
    operations: ContainerOperations, machine: Machine, name: str
) -> UsageSample | None:
    query = {"stream": "false", "one-shot": "true"}
    path = f"{operations.container_path(machine, name)}/stats"
    try:
        return parse_sample(await operations.engine.request("GET", path, query))
    except EngineError:
        return None


def parse_sample(stats: JsonObject | None) -> UsageSample | None:
    if not stats:
        return None
    memory = stats.get("memory_stats") or {}
    return UsageSample(
        at_s=unix_time(str(stats.get("read", ""))),
        cpu_ns=int((stats.get("cpu_stats") or {}).get("cpu_usage", {}).get("total_usage", 0)),
        memory_bytes=int(memory.get("usage", 0)),
        limit_bytes=int(memory.get("limit", 0)),
    )
