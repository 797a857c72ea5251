"""Container logs that are large or expensive to read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from datum_compute.drivers.containers.container_spec import (
    ContainerOwner,
    ContainerPlan,
    MachinePlan,
)
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.logs import read_page
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.logs import LogOwner, LogPage, LogPosition, LogQuery, WorkloadLog

_TIME = b"2026-01-01T00:00:00Z "
_FROM_START = LogQuery(cursor={"u/app": LogPosition(second=1, lines=0)})


@dataclass(frozen=True, slots=True)
class HostileLog:
    name: str
    content: Callable[[], bytes]
    query: LogQuery


def _frames(payload: bytes, count: int) -> bytes:
    return (b"\1\0\0\0" + len(payload).to_bytes(4) + payload) * count


LOGS = (
    HostileLog("log of 10 MB, short lines of one second", lambda: _short_lines(), LogQuery()),
    HostileLog("log of 10 MB, followed", lambda: _short_lines(), _FROM_START),
    HostileLog(
        "log of 10 MB, previous run", lambda: _short_lines(), LogQuery(previous=True, tail=5000)
    ),
    HostileLog("log of 50 MB, long lines", lambda: _long_lines(), LogQuery(tail=5000)),
    HostileLog("log with a line of 50 MB", lambda: _frames(b"x" * 50_000_000, 1), LogQuery()),
    HostileLog("log of a terminal without line ends", lambda: b"x" * 50_000_000, LogQuery()),
    HostileLog("log with empty frames", lambda: _frames(b"", 1_000_000), LogQuery()),
)


def _short_lines() -> bytes:
    return _frames(_TIME + b"x\n", 320_000)


def _long_lines() -> bytes:
    return _frames(_TIME + b"\xff" * 16_000 + b"\n", 3_000)


class _ContentEngine(Engine):
    """An engine that responds to every request with the same content."""

    def __init__(self, content: bytes) -> None:
        super().__init__("unused")
        self._content = content

    async def _chunks(self, answer: Any) -> Any:
        yield self._content

    def _request(self, *_: Any, **__: Any) -> Any:
        return _NoContext()


class _NoContext:
    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *_: object) -> None: ...


class _EmptyArchive:
    async def save(
        self, machine_id: str, container: str, framed: bytes, owner: LogOwner
    ) -> None: ...

    async def load(self, server: str, workload_uid: str = "") -> list[tuple[str, str, bytes]]:
        return []

    async def find(self, namespace: str, workload: str) -> list[WorkloadLog]:
        return []


async def read_hostile_log(content: bytes, query: LogQuery) -> LogPage:
    plan = MachinePlan(containers=[ContainerPlan(name="app", image="web:1")])
    operations = ContainerOperations(
        _ContentEngine(content), ContainerOwner("p", "dfw"), cast(Any, None), _EmptyArchive()
    )
    return await read_page(
        operations, _EmptyArchive(), "ns/web", [Machine("ns/web/u", plan)], query
    )
