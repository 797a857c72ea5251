"""Machine controller: runs a Server as a machine of the driver and reports the machine's state.

``planning/rollout/machine.py`` decides the steps. A second controller periodically removes machines
that belong to no Server. A provider may list a machine late, twice, or after it reported the
removal, without an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import assert_never

from datum_compute.api import labels
from datum_compute.api.compute.referenced_data import Reference, references_of_server
from datum_compute.api.compute.server import Server, ServerStatus
from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import SERVER
from datum_compute.api.meta.objects import Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.machine_data import machine_data
from datum_compute.controllers.referenced_data import (
    read_sources,
    source_edges,
    source_index_values,
)
from datum_compute.drivers.driver import (
    NO_DATA,
    Driver,
    DriverError,
    MachineData,
    MachineState,
    NotObserved,
    Observation,
    PermanentError,
)
from datum_compute.planning.rollout.machine import (
    MAY_SERVE,
    RECHECK_S,
    SETTLED,
    MachineStep,
    failed_status,
    first_step,
    machine_id_of,
    observed_status,
    orphan_machines,
    plan_finalizer,
    plan_machine_release,
    plan_server_status,
    status_before_start,
    step_after_observation,
)
from datum_compute.planning.rollout.suspension import is_machine_stopped
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
)
from datum_compute.runtime.predicates import any_of, new_state, spec_or_metadata_changed

# How often all machines are compared with all Servers.
SWEEP_S = 30.0
# How often Servers that may serve are checked for a lost machine. An Instance is therefore counted
# as serving for at most 5 s without its machine, even if the driver's event was lost.
LOST_MACHINE_CHECK_S = 4.0
# The check lets other tasks run after this many Servers.
YIELD_EVERY_SERVERS = 500

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    server = client.read(SERVER).get(key.ref)
    driver = context.drivers[key.plane]
    if server is None:
        left = await _remove_orphans(client, driver, key.ref, None)
        return Requeue(RECHECK_S) if left else Done()
    step, state = first_step(server), None
    if step is MachineStep.OBSERVE:
        state = await driver.observe(machine_id_of(server))
        suspended = state if isinstance(state, MachineState) and state.is_suspended else None
        step = step_after_observation(
            server,
            has_machine=state is not None,
            is_suspended=suspended is not None,
            is_stopped=suspended is not None and suspended.reason == Reason.STOPPED,
        )
    match step:
        case MachineStep.REMOVE:
            return await _remove_machine(context, driver, key, server)
        case MachineStep.ADD_FINALIZER:
            return await apply_plan(context.planes, plan_finalizer(key.plane, server))
        case MachineStep.REPORT:
            return await _report_machine(context, key, server, state)
        case MachineStep.START:
            return await _start_machine(context, client, key, server)
        case MachineStep.SUSPEND:
            await driver.suspend(machine_id_of(server))
            state = await driver.observe(machine_id_of(server))
            return await _report_machine(context, key, server, state)
        case MachineStep.RESUME:
            await driver.resume(machine_id_of(server))
            state = await driver.observe(machine_id_of(server))
            return await _report_machine(context, key, server, state)
        case MachineStep.OBSERVE:
            raise AssertionError("step_after_observation() decides what follows an observation")
        case _:
            assert_never(step)


async def _remove_machine(context: Context, driver: Driver, key: Key, server: Server) -> Outcome:
    machine_id = machine_id_of(server)
    await driver.remove(machine_id)
    has_machine = await driver.observe(machine_id) is not None
    plan = plan_machine_release(key.plane, server, has_machine=has_machine)
    return await apply_plan(context.planes, plan)


async def _start_machine(
    context: Context, client: CachedClient, key: Key, server: Server
) -> Outcome:
    driver = context.drivers[key.plane]
    if await _remove_orphans(client, driver, key.ref, server):
        return Requeue(RECHECK_S)
    try:
        wanted = references_of_server(server.spec)
        if wanted:
            return await _start_with_data(context, client, key, server, wanted)
        state = await _start_and_observe(driver, server, NO_DATA)
    except PermanentError as error:
        return await _write_status(context, key, server, failed_status(server, str(error)))
    return await _report_machine(context, key, server, state)


async def _start_with_data(
    context: Context, client: CachedClient, key: Key, server: Server, wanted: Sequence[Reference]
) -> Outcome:
    observed = await read_sources(client, key.ref.namespace, wanted)
    status = status_before_start(server, wanted, observed)
    if status is not None:
        return await _write_status(context, key, server, status)
    data = machine_data(server, wanted, observed)
    state = await _start_and_observe(context.drivers[key.plane], server, data)
    return await _report_machine(context, key, server, state)


async def _report_machine(
    context: Context, key: Key, server: Server, state: Observation
) -> Outcome:
    if isinstance(state, NotObserved):
        return Requeue(RECHECK_S)
    return await _write_status(context, key, server, observed_status(server, state))


async def _write_status(
    context: Context, key: Key, server: Server, status: ServerStatus
) -> Outcome:
    return await apply_plan(context.planes, plan_server_status(key.plane, server, status))


async def _start_and_observe(driver: Driver, server: Server, data: MachineData) -> Observation:
    machine_id = machine_id_of(server)
    await driver.start(machine_id, server.spec, data)
    return await driver.observe(machine_id)


async def _remove_orphans(
    client: CachedClient, driver: Driver, ref: Ref, server: Server | None
) -> bool:
    """Remove machines with this name that belong to no Server. Return True while one still exists.

    A live read confirms that they belong to no Server, because the cache may be stale.
    """
    orphans = orphan_machines(await driver.machines(f"{ref}/"), [server])
    if orphans:
        orphans = orphan_machines(orphans, [server, await client.get_uncached(SERVER, ref)])
    for machine_id in orphans:
        await driver.remove(machine_id)
    return any([await driver.observe(machine_id) is not None for machine_id in orphans])


def is_unsettled(server: Server) -> bool:
    if server.spec.suspended:
        return not is_machine_stopped(server)
    return server.status.phase not in SETTLED


def index_sources(server: Server) -> Iterable[str]:
    """Yield the sources of a Pending Server. A change of a source does not affect a machine."""
    if server.status.phase == "Pending":
        yield from source_index_values(server.metadata.namespace, references_of_server(server.spec))


WAITING_FOR_DATA = Index(SERVER, "waits-for-data", index_sources)


def index_may_serve(server: Server) -> Iterable[str]:
    return ("",) if server.status.phase in MAY_SERVE else ()


MAY_SERVE_SERVERS = Index(SERVER, "may-serve-servers", index_may_serve)


async def find_lost_machines(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    """Yield, every LOST_MACHINE_CHECK_S, the Servers that may serve and have no machine.

    This is cheap, because drivers keep the state of the machines that they manage in memory. Only
    the pods driver reads each pod from the cluster, and only while its watch is interrupted.
    """
    driver = context.drivers[client.plane]
    while True:
        await asyncio.sleep(LOST_MACHINE_CHECK_S)
        servers = client.read_unsynced(SERVER)
        for number, ref in enumerate(servers.refs_by_index(MAY_SERVE_SERVERS.name, ""), start=1):
            try:
                state = await driver.observe(f"{ref}/{servers.uid(ref)}")
            except DriverError:  # not known to be lost
                continue
            if state is None:
                yield Key(client.plane, ref)
            if number % YIELD_EVERY_SERVERS == 0:
                await asyncio.sleep(0)


async def driver_changes(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    """Yield all machines once, because their Servers may be gone, then those that change."""
    driver = context.drivers[client.plane]
    while True:
        try:
            for machine_id in await driver.machines():
                yield _key_of(client, machine_id)
            async for machine_id in driver.changes():
                yield _key_of(client, machine_id)
        except DriverError as error:  # an unreachable engine must not end the process
            _log.warning("cannot watch the machines of %s: %s", client.plane, error)
        await asyncio.sleep(RECHECK_S)


async def remove_orphans(context: Context, key: Key) -> Outcome:
    """Remove the machines with this name that belong to no Server."""
    client = context.planes.require(key.plane)
    server = client.read(SERVER).get(key.ref)
    left = await _remove_orphans(client, context.drivers[key.plane], key.ref, server)
    return Requeue(RECHECK_S) if left else Done()


async def machines_without_server(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    async for wanted, found in _compare_machines(context, client):
        for machine_id in sorted(found - wanted):
            yield _key_of(client, machine_id)


async def servers_without_machine(context: Context, client: CachedClient) -> AsyncIterator[Key]:
    async for wanted, found in _compare_machines(context, client):
        for machine_id in sorted(wanted - found):
            yield _key_of(client, machine_id)


async def _compare_machines(
    context: Context, client: CachedClient
) -> AsyncIterator[tuple[set[str], set[str]]]:
    """Yield, every SWEEP_S, the machines that Servers need and the machines that exist.

    Comparing two lists of ids is cheaper than observing each machine.
    """
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            found = set(await context.drivers[client.plane].machines())
        except DriverError as error:
            _log.warning("cannot list the machines of %s: %s", client.plane, error)
            continue
        yield {f"{ref}/{uid}" for ref, uid in client.read_unsynced(SERVER).uids().items()}, found


def _key_of(client: CachedClient, machine_id: str) -> Key:
    namespace, name, _ = machine_id.split("/")
    return Key(client.plane, Ref(namespace, name))


CONTROLLER = Controller(
    name="machine",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(SERVER, update_filter=any_of(new_state(is_unsettled), spec_or_metadata_changed)),
        *source_edges(WAITING_FOR_DATA),
    ),
    indexes=(WAITING_FOR_DATA, MAY_SERVE_SERVERS),
    finalizers=(labels.DRIVER_FINALIZER,),
    external_sources=(driver_changes, servers_without_machine, find_lost_machines),
    workers=MANY_WORKERS,
)

SWEEPER = Controller(
    name="machine-sweeper",
    role="cell",
    reconcile=remove_orphans,
    edges=(reads(SERVER),),
    external_sources=(machines_without_server,),
    workers=1,
)

CONTROLLERS = (CONTROLLER, SWEEPER)
