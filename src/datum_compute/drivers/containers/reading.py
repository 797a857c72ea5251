"""Reads the output of machines: existing ones from the engine, deleted ones from the archive.

A page is bounded in lines and bytes, and reading it lets other work run after every piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from datum_compute.drivers.containers.effects import Hands
from datum_compute.drivers.containers.engine import EngineRefusal, pieces_of
from datum_compute.drivers.containers.loglines import (
    LINES_MAX,
    PAGE_BYTES_MAX,
    Cursor,
    LineCollector,
    LogArchive,
    LogLine,
    LogPage,
    Place,
    Selection,
)
from datum_compute.drivers.containers.machine import Machine

# Of one log for one page. A reader that follows continues from there with its next page.
SCANNED_BYTES_MAX = 64 * 1024 * 1024
_SOURCE_LINES_MIN, _SOURCE_BYTES_MIN = 100, 64 * 1024


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
    lines: Sequence[tuple[int, LogLine]]  # each with its second
    place: Place | None


class PageBuilder:
    """Merges the lines of containers into one page. Holds at most a page and one container."""

    def __init__(self, wish: LogWish, sources: int) -> None:
        self._wish = wish
        self._cursor: dict[str, Place] = dict(wish.cursor)
        self._lines: list[tuple[int, LogLine]] = []
        # A reader with a cursor gets lines of every container, so that a busy one blocks no other.
        self._share = max(1, sources) if wish.cursor else 1

    def selection(self, key: str) -> Selection:
        """Return which lines of a container belong on the page."""
        wish = self._wish
        lines_max = LINES_MAX if wish.cursor else min(wish.tail, LINES_MAX)
        return Selection(
            place=wish.cursor.get(key),
            is_first=bool(wish.cursor),
            since_s=wish.since_s,
            lines_max=max(lines_max // self._share, min(lines_max, _SOURCE_LINES_MIN)),
            bytes_max=max(PAGE_BYTES_MAX // self._share, _SOURCE_BYTES_MIN),
        )

    def add(self, source: Source) -> None:
        # A container without lines is in the cursor too, so that its next line counts as new.
        self._cursor[source.key] = source.place or Place(second=0, lines=0)
        self._lines = sorted([*self._lines, *source.lines], key=lambda line: line[0])
        if not self._wish.cursor:
            self._drop_oldest()

    def page(self) -> LogPage:
        return LogPage(lines=[line for _, line in self._lines], cursor=self._cursor)

    def _drop_oldest(self) -> None:
        excess = len(self._lines) - min(self._wish.tail, LINES_MAX)
        size = sum(len(line.text) for _, line in self._lines)
        start = 0
        while start < len(self._lines) and (start < excess or size > PAGE_BYTES_MAX):
            size -= len(self._lines[start][1].text)
            start += 1
        del self._lines[:start]


async def read_page(
    hands: Hands, archive: LogArchive, server: str, machines: Iterable[Machine], wish: LogWish
) -> LogPage:
    """Return a page of the lines of all machines of a Server's name, in their order."""
    archived = [
        (source_key(machine_id, container), container, framed)
        for machine_id, container, framed in await archive.kept(server)
        if not wish.container or container == wish.container
    ]
    present = [
        (machine, name)
        for machine in machines
        for name in machine.containers
        if not wish.container or name == wish.container
    ]
    builder = PageBuilder(wish, len(archived) + len(present))
    for key, container, framed in archived:
        builder.add(await _read_archived(key, container, framed, builder.selection(key)))
    for machine, name in present:
        builder.add(await _read_engine(hands, machine, name, wish, builder))
    return builder.page()


def tail_lines(wish: LogWish) -> int:
    """Return how many lines to request: at least one, which sets the place of the reader."""
    return max(1, min(wish.tail, LINES_MAX))


async def _read_archived(key: str, container: str, framed: bytes, selection: Selection) -> Source:
    collector = LineCollector(container, selection)
    await feed_pieces(collector, framed)
    return Source(key, collector.lines, collector.place)


async def feed_pieces(collector: LineCollector, content: bytes) -> None:
    """Collect lines of output that is in memory. Other work runs after every piece."""
    for piece in pieces_of(content):
        if collector.feed(piece):
            return
        await asyncio.sleep(0)
    collector.finish()


async def _read_engine(
    hands: Hands, machine: Machine, name: str, wish: LogWish, builder: PageBuilder
) -> Source:
    key = source_key(machine.id, name)
    selection = builder.selection(key)
    if wish.previous and name in machine.seen:
        selection = replace(selection, before_s=int(machine.seen[name].started_s))
    query = {"stdout": "true", "stderr": "true", "timestamps": "true"}
    place = selection.place
    if place is not None and place.second:
        query["since"] = str(place.second)
    elif wish.since_s:
        query["since"] = str(int(wish.since_s))
    if not wish.previous and not wish.cursor:
        query["tail"] = str(tail_lines(wish))
    collector = await _collect(hands, machine, name, query, selection)
    if "tail" in query and len(collector.seconds) == 1:
        # All lines are of one second: read the whole second to find the place in it.
        whole = {**query, "tail": "all", "since": str(min(collector.seconds))}
        collector = await _collect(hands, machine, name, whole, selection)
    return Source(key, collector.lines, collector.place)


async def _collect(
    hands: Hands, machine: Machine, name: str, query: dict[str, str], selection: Selection
) -> LineCollector:
    collector = LineCollector(name, selection)
    path = f"/containers/{hands.name(machine, name)}/logs"
    with suppress(EngineRefusal):  # not created yet, or just removed
        async with hands.log_reads:
            is_whole = await hands.engine.fetch_into(
                collector.feed, "GET", path, query, bytes_max=SCANNED_BYTES_MAX
            )
        if is_whole:
            collector.finish()
    return collector


def source_key(machine_id: str, container: str) -> str:
    return f"{machine_id.rpartition('/')[2]}/{container}"
