"""Reads what machines say: those that are there from the engine, those that are gone from the
archive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from datum_compute.drivers.containers.effects import Hands
from datum_compute.drivers.containers.engine import EngineRefusal
from datum_compute.drivers.containers.loglines import (
    LINES_MAX,
    Cursor,
    LogArchive,
    LogLine,
    LogPage,
    Place,
    lines_after,
    place_after,
    read_lines,
)
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.seen import unix_time


@dataclass(frozen=True, slots=True)
class LogWish:
    """Which lines. With a cursor those after it; without one the last ``tail`` of them."""

    container: str = ""
    tail: int = 200
    since_s: float = 0.0
    previous: bool = False  # those before the last start
    cursor: Cursor = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """Lines of one container of one machine, under the key by which a reader's place is kept."""

    key: str
    lines: list[LogLine]


async def read_page(
    hands: Hands, archive: LogArchive, server: str, machines: Iterable[Machine], wish: LogWish
) -> LogPage:
    """A page of the lines of all machines of a Server's name, in their order."""
    sources = [
        Source(source_key(machine_id, container), read_lines(container, framed))
        for machine_id, container, framed in archive.kept(server)
        if not wish.container or container == wish.container
    ]
    sources += [
        await _of_engine(hands, machine, name, wish)
        for machine in machines
        for name in machine.containers
        if not wish.container or name == wish.container
    ]
    return page_of(sources, wish)


def page_of(sources: Sequence[Source], wish: LogWish) -> LogPage:
    cursor: dict[str, Place] = dict(wish.cursor)
    found: list[tuple[str, LogLine]] = []
    for source in sources:
        place = wish.cursor.get(source.key)
        new = lines_after(source.lines, place)
        new = [line for line in new if unix_time(line.time) >= wish.since_s]
        if not wish.cursor:
            after = place_after(source.lines, None)  # also of lines that are not shown
        else:
            new = new[:LINES_MAX]
            after = place_after(new, place)
        # One that has said nothing is known all the same: what it says next is new.
        cursor[source.key] = after or Place(second=0, lines=0)
        found += [(source.key, line) for line in new]
    found.sort(key=lambda pair: int(unix_time(pair[1].time)))
    lines = [line for _, line in found]
    if not wish.cursor:
        lines = lines[max(0, len(lines) - min(wish.tail, LINES_MAX)) :]
    return LogPage(lines=lines, cursor=cursor)


async def _of_engine(hands: Hands, machine: Machine, name: str, wish: LogWish) -> Source:
    key = source_key(machine.id, name)
    place = wish.cursor.get(key)
    query = {"stdout": "true", "stderr": "true", "timestamps": "true"}
    if place is not None and place.second:
        query["since"] = str(place.second)
    elif wish.since_s:
        query["since"] = str(int(wish.since_s))
    elif not wish.previous and not wish.cursor:
        query["tail"] = str(min(wish.tail, LINES_MAX))
    lines = await _asked(hands, machine, name, query)
    if "tail" in query and lines and lines[0].time == lines[-1].time:
        # All of one second: to know one's place in it all of it must be seen.
        whole = {**query, "tail": "all", "since": str(int(unix_time(lines[0].time)))}
        lines = await _asked(hands, machine, name, whole)
    if wish.previous and name in machine.seen:
        started_s = int(machine.seen[name].started_s)
        lines = [line for line in lines if unix_time(line.time) < started_s]
    return Source(key, lines)


async def _asked(hands: Hands, machine: Machine, name: str, query: dict[str, str]) -> list[LogLine]:
    path = f"/containers/{hands.name(machine, name)}/logs"
    try:
        return read_lines(name, await hands.engine.fetch("GET", path, query))
    except EngineRefusal:
        return []  # not made yet, or just removed


def source_key(machine_id: str, container: str) -> str:
    return f"{machine_id.rpartition('/')[2]}/{container}"
