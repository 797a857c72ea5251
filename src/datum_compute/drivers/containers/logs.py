"""Reads the output of machines: existing ones from the engine, deleted ones from the archive.

A page is bounded in lines and bytes, and reading it lets other work run after every piece.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from datum_compute.drivers.containers.engine import EngineError
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.logs import (
    LineCollector,
    LineSelection,
    LogArchive,
    LogPage,
    LogQuery,
    LogSource,
    PageBuilder,
    feed_pieces,
    source_key,
    tail_lines,
)

# Of one log for one page. A reader that follows continues from there with its next page.
SCANNED_BYTES_MAX = 64 * 1024 * 1024


async def read_page(
    hands: ContainerOperations,
    archive: LogArchive,
    server: str,
    machines: Iterable[Machine],
    wish: LogQuery,
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


async def _read_archived(
    key: str, container: str, framed: bytes, selection: LineSelection
) -> LogSource:
    collector = LineCollector(container, selection)
    await feed_pieces(collector, framed)
    return LogSource(key, collector.lines, collector.place)


async def _read_engine(
    hands: ContainerOperations, machine: Machine, name: str, wish: LogQuery, builder: PageBuilder
) -> LogSource:
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
    return LogSource(key, collector.lines, collector.place)


async def _collect(
    hands: ContainerOperations,
    machine: Machine,
    name: str,
    query: dict[str, str],
    selection: LineSelection,
) -> LineCollector:
    collector = LineCollector(name, selection)
    path = f"/containers/{hands.name(machine, name)}/logs"
    with suppress(EngineError):  # not created yet, or just removed
        async with hands.log_reads:
            is_whole = await hands.engine.fetch_into(
                collector.feed, "GET", path, query, bytes_max=SCANNED_BYTES_MAX
            )
        if is_whole:
            collector.finish()
    return collector
