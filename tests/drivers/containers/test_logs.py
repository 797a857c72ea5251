"""Log pages request no more from the engine than they contain."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from datum_compute.drivers.containers.container_spec import (
    ContainerOwner,
    ContainerPlan,
    MachinePlan,
)
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.containers.logs import read_page
from datum_compute.drivers.containers.machine import (
    Machine,
)
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.logs import LogOwner, LogPosition, LogQuery, WorkloadLog

SECOND = 1_000_000_000


def framed(payload: bytes, stream: int = 1) -> bytes:
    return bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4) + payload


def timed(second: int, text: str, stream: int = 1) -> bytes:
    time = datetime.fromtimestamp(second + SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return framed(f"{time} {text}\n".encode(), stream)


class ScriptedEngine(Engine):
    """Answers each request for a log with the next content, in pieces."""

    def __init__(self, *contents: bytes) -> None:
        super().__init__("unused")
        self.contents = list(contents)
        self.queries: list[dict[str, str]] = []
        self.passed_bytes = 0

    async def read_into(
        self, consume: Any, method: str, path: str, query: Any = None, *_: Any, **limits: Any
    ) -> bool:
        self.queries.append(dict(query))
        content = self.contents.pop(0)
        for start in range(0, len(content), 1000):
            self.passed_bytes += 1000
            if consume(content[start : start + 1000]) or self.passed_bytes >= limits["bytes_max"]:
                return False
        return True


class EmptyArchive:
    async def save(
        self, machine_id: str, container: str, framed: bytes, owner: LogOwner
    ) -> None: ...

    async def load(self, server: str, workload_uid: str = "") -> list[tuple[str, str, bytes]]:
        return []

    async def find(self, namespace: str, workload: str) -> list[WorkloadLog]:
        return []


async def read(
    engine: Engine, query: LogQuery, owner_uid: str = ""
) -> tuple[list[str], dict[str, LogPosition]]:
    plan = MachinePlan(
        containers=[ContainerPlan(name="app", image="web:1")], owner=LogOwner(uid=owner_uid)
    )
    operations = ContainerOperations(
        engine, ContainerOwner("p", "dfw"), cast(Any, None), EmptyArchive()
    )
    page = await read_page(operations, EmptyArchive(), "ns/web", [Machine("ns/web/u", plan)], query)
    return [line.text for line in page.lines], page.cursor


async def test_tail_and_since_are_applied_by_the_engine() -> None:
    engine = ScriptedEngine(timed(1, "a") + timed(2, "b"))
    await read(engine, LogQuery(tail=5, since_s=7.5))
    assert (engine.queries[0]["tail"], engine.queries[0]["since"]) == ("5", "7")


async def test_a_reader_of_no_lines_gets_a_position() -> None:
    engine = ScriptedEngine(timed(1, "a"), timed(1, "a"))
    assert await read(engine, LogQuery(tail=0)) == (
        [],
        {"u/app": LogPosition(second=SECOND + 1, lines=1)},
    )


async def test_the_rest_of_a_long_log_is_not_read() -> None:
    engine = ScriptedEngine(b"".join(timed(1, str(number)) for number in range(20_000)))
    found, cursor = await read(
        engine, LogQuery(cursor={"u/app": LogPosition(second=SECOND, lines=0)})
    )
    assert (len(found), cursor) == (5000, {"u/app": LogPosition(second=SECOND + 1, lines=5000)})
    assert engine.passed_bytes < 5001 * 45


async def test_machines_of_another_workload_with_the_same_name_are_left_out() -> None:
    for owner_uid, expected in (("one", ["a"]), ("other", []), ("", ["a"])):
        engine = ScriptedEngine(timed(1, "a"), timed(1, "a"))
        found, _ = await read(engine, LogQuery(workload_uid="one"), owner_uid)
        assert found == expected, f"owner {owner_uid!r}"
