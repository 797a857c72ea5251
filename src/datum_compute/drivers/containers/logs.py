"""Reads log pages of machines: of existing ones from the engine, of deleted ones from the archive.

A page is bounded in lines and bytes. Other tasks run after every piece that is read.
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
    collect_pieces,
    requested_tail,
    source_key,
)

# Read from one log for one page. A reader that follows the log continues with the next page.
SCANNED_BYTES_MAX = 64 * 1024 * 1024


async def read_page(
    operations: ContainerOperations,
    archive: LogArchive,
    server: str,
    machines: Iterable[Machine],
    query: LogQuery,
) -> LogPage:
    """Return a page with the lines of all machines of a Server."""
    archived = [
        (source_key(machine_id, container), container, frames)
        for machine_id, container, frames in await archive.load(server, query.workload_uid)
        if not query.container or container == query.container
    ]
    existing = [
        (machine, name)
        for machine in machines
        if machine.plan.owner.is_selected(query.workload_uid)
        for name in machine.container_names
        if not query.container or name == query.container
    ]
    builder = PageBuilder(query, len(archived) + len(existing))
    for key, container, frames in archived:
        builder.add(await _read_archived(key, container, frames, builder.selection(key)))
    for machine, name in existing:
        builder.add(await _read_from_engine(operations, machine, name, query, builder))
    return builder.page()


async def _read_archived(
    key: str, container: str, frames: bytes, selection: LineSelection
) -> LogSource:
    collector = LineCollector(container, selection)
    await collect_pieces(collector, frames)
    return LogSource(key, collector.lines, collector.position)


async def _read_from_engine(
    operations: ContainerOperations,
    machine: Machine,
    name: str,
    query: LogQuery,
    builder: PageBuilder,
) -> LogSource:
    key = source_key(machine.id, name)
    selection = builder.selection(key)
    if query.previous and name in machine.inspected:
        selection = replace(selection, before_s=int(machine.inspected[name].started_s))
    parameters = {"stdout": "true", "stderr": "true", "timestamps": "true"}
    position = selection.position
    if position is not None and position.second:
        parameters["since"] = str(position.second)
    elif query.since_s:
        parameters["since"] = str(int(query.since_s))
    if not query.previous and not query.cursor:
        parameters["tail"] = str(requested_tail(query))
    collector = await _collect(operations, machine, name, parameters, selection)
    if "tail" in parameters and len(collector.seconds) == 1:
        # All lines are of one second: read the whole second to find the position in it.
        whole = {**parameters, "tail": "all", "since": str(min(collector.seconds))}
        collector = await _collect(operations, machine, name, whole, selection)
    return LogSource(key, collector.lines, collector.position)


async def _collect(
    operations: ContainerOperations,
    machine: Machine,
    name: str,
    parameters: dict[str, str],
    selection: LineSelection,
) -> LineCollector:
    collector = LineCollector(name, selection)
    path = f"{operations.container_path(machine, name)}/logs"
    with suppress(EngineError):  # not created yet, or just removed
        async with operations.log_reads:
            is_whole = await operations.engine.read_into(
                collector.feed, "GET", path, parameters, bytes_max=SCANNED_BYTES_MAX
            )
        if is_whole:
            collector.finish()
    return collector
