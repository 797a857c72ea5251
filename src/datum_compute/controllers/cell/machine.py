"""Server -> a machine of the cell's driver, and the machine's state back.

A second controller sweeps: providers forget, repeat themselves and bring back what they called
gone, and none of that is an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE
from datum_compute.api.kinds import SERVER
from datum_compute.api.meta import Ref
from datum_compute.api.reasons import Reason
from datum_compute.api.references import Reference, references_of_server
from datum_compute.api.server import Server, ServerStatus
from datum_compute.controllers.cell.delivery import machine_data
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.sources import index_values, read_sources, wakes
from datum_compute.drivers.driver import (
    Driver,
    DriverError,
    MachineState,
    NotObserved,
    Observation,
    PermanentError,
)
from datum_compute.drivers.machinedata import NO_DATA, MachineData
from datum_compute.planning.actions import Plan, add_finalizer, drop_finalizer
from datum_compute.planning.objects import plan_status
from datum_compute.planning.references import data_verdict, pinned
from datum_compute.planning.spread import spread
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
    spec_or_metadata_changed,
)

# The driver's own news come at once; these repair what was missed.
RECHECK_S = 1.0
UNSETTLED_S = 10.0
STEADY_S = 300.0
SWEEP_S = 30.0
# How often Servers that may serve are checked for a lost machine. An Instance is therefore counted
# as serving for at most 5 s without its machine, even if the driver's event was lost.
LOST_MACHINE_CHECK_S = 4.0
# Such a check lets other tasks run after this many Servers.
YIELD_EVERY_SERVERS = 500
SETTLED = ("Running", "Sleeping")
# An Instance of such a Server counts as serving. Unknown replaces only a phase that was observed.
MAY_SERVE = (*SETTLED, "Unknown")

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    server = view.read(SERVER).get(key.ref)
    driver = context.drivers[key.plane]
    if server is None:
        left = await _remove_strangers(view, driver, key.ref, "")
        return Requeue(RECHECK_S) if left else Done()
    machine_id = machine_id_of(server)
    if server.is_terminating:
        await driver.remove(machine_id)
        if await driver.observe(machine_id) is not None:
            return await carry_out(context.planes, Plan(requeue_after_s=RECHECK_S))
        release = drop_finalizer(key.plane, SERVER, server, labels.DRIVER_FINALIZER)
        return await carry_out(context.planes, Plan(tuple(release)))
    guard = add_finalizer(key.plane, SERVER, server, labels.DRIVER_FINALIZER)
    if guard:
        return await carry_out(context.planes, Plan(tuple(guard)))
    state = await driver.observe(machine_id)
    if state is None:
        if server.status.phase in MAY_SERVE:
            # Report the loss before starting a new machine, which may take long or fail.
            return await _report(context, key, server, None)
        if await _remove_strangers(view, driver, key.ref, machine_id):
            return Requeue(RECHECK_S)  # never two machines for one slot
        wanted = references_of_server(server.spec)
        if wanted:
            return await _start_with_data(context, view, key, server, wanted)
        state = await _start_and_observe(driver, machine_id, server, NO_DATA)
    return await _report(context, key, server, state)


async def _start_with_data(
    context: Context, view: CachedClient, key: Key, server: Server, wanted: Sequence[Reference]
) -> Outcome:
    """First the versions are on record, then the machine is started with them: whatever happens in
    between, a machine that is there was started with what its Server says."""
    observed = await read_sources(view, key.ref.namespace, wanted)
    verdict = data_verdict(wanted, observed)
    if verdict.status != TRUE:
        missing = MachineState("Pending", reason=verdict.reason, message=verdict.message)
        return await _report(context, key, server, missing)
    pins = pinned(wanted, observed)
    if server.status.referenced_data != pins:
        starting = MachineState("Pending", reason=Reason.STARTING, message="taking its data")
        status = msgspec.structs.replace(observed_status(server, starting), referenced_data=pins)
        return await _write_status(context, key, server, status)
    driver, machine_id = context.drivers[key.plane], machine_id_of(server)
    try:
        data = machine_data(server, wanted, observed)
    except PermanentError as error:
        state: Observation = _refused(error)
    else:
        state = await _start_and_observe(driver, machine_id, server, data)
    return await _report(context, key, server, state)


async def _report(context: Context, key: Key, server: Server, state: Observation) -> Outcome:
    if isinstance(state, NotObserved):
        return Requeue(RECHECK_S)
    return await _write_status(context, key, server, observed_status(server, state))


async def _write_status(
    context: Context, key: Key, server: Server, status: ServerStatus
) -> Outcome:
    settled = status.phase in SETTLED
    plan = Plan(
        tuple(plan_status(key.plane, SERVER, server, status)),
        requeue_after_s=spread(STEADY_S if settled else UNSETTLED_S, key.ref),
    )
    return await carry_out(context.planes, plan)


async def _start_and_observe(
    driver: Driver, machine_id: str, server: Server, data: MachineData
) -> Observation:
    """Start the machine and observe it. A permanent error is a state and is not retried."""
    try:
        await driver.start(machine_id, server.spec, data)
        return await driver.observe(machine_id)
    except PermanentError as error:
        return _refused(error)


def _refused(error: PermanentError) -> MachineState:
    return MachineState("Failed", reason=Reason.CONFIGURATION_ERROR, message=str(error))


async def _remove_strangers(view: CachedClient, driver: Driver, ref: Ref, own_id: str) -> bool:
    """Remove machines of the name that belong to no Server; True while one is still there. That
    there is no such Server is asked of the plane itself: a cache may be behind."""
    strangers = [
        machine_id for machine_id in await driver.machines(f"{ref}/") if machine_id != own_id
    ]
    if strangers and (held := await view.get_uncached(SERVER, ref)) is not None:
        strangers = [each for each in strangers if each != machine_id_of(held)]
    for machine_id in strangers:
        await driver.remove(machine_id)
    return any([await driver.observe(machine_id) is not None for machine_id in strangers])


def machine_id_of(server: Server) -> str:
    """Never used again: it contains the uid."""
    metadata = server.metadata
    return f"{metadata.namespace}/{metadata.name}/{metadata.uid}"


def observed_status(server: Server, state: MachineState | None) -> ServerStatus:
    """Return the Server status that follows from an observation.

    Phase Unknown changes only phase, reason and message, so that addresses and images are kept. A
    Server that was never observed keeps its empty status.
    """
    generation = server.metadata.generation
    if state is not None and state.phase == "Unknown":
        if not server.status.observed_generation:
            return server.status
        return msgspec.structs.replace(
            server.status, phase=state.phase, reason=state.reason, message=state.message
        )
    if state is None:
        return ServerStatus(
            phase="Pending",
            message="the machine is gone and is started again",
            observed_generation=generation,
            referenced_data=server.status.referenced_data,
        )
    return ServerStatus(
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        restarts=state.restarts,
        exit_code=state.exit_code,
        started_at=state.started_at,
        addresses=list(state.addresses),
        last_lines=list(state.last_lines),
        observed_generation=generation,
        referenced_data=server.status.referenced_data,
        images=list(state.images),
        last_wake=state.last_wake or server.status.last_wake,
        spec_fingerprint=state.spec_fingerprint,
    )


def concerns_driver(old: Server, new: Server) -> bool:
    """What is on record of a machine that is settled is our own report."""
    return spec_or_metadata_changed(old, new) or new.status.phase not in SETTLED


def waits_for(server: Server) -> Iterable[str]:
    """Only while there is no machine: one that runs keeps what it was started with."""
    if server.status.phase == "Pending":
        yield from index_values(server.metadata.namespace, references_of_server(server.spec))


WAITING = Index(SERVER, "waits-for-data", waits_for)


def index_may_serve(server: Server) -> Iterable[str]:
    return ("",) if server.status.phase in MAY_SERVE else ()


MAY_SERVE_SERVERS = Index(SERVER, "may-serve-servers", index_may_serve)


async def find_lost_machines(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Yield, every LOST_MACHINE_CHECK_S, the Servers that may serve and have no machine.

    Drivers answer from memory for a machine that they know. Only the pods driver reads each pod
    from the cluster while its watch is lost.
    """
    driver = context.drivers[view.plane]
    while True:
        await asyncio.sleep(LOST_MACHINE_CHECK_S)
        servers = view.cached(SERVER)
        for number, ref in enumerate(servers.refs_indexed(MAY_SERVE_SERVERS.name, ""), start=1):
            try:
                state = await driver.observe(f"{ref}/{servers.uid(ref)}")
            except DriverError:  # not known to be lost
                continue
            if state is None:
                yield Key(view.plane, ref)
            if number % YIELD_EVERY_SERVERS == 0:
                await asyncio.sleep(0)


async def machine_news(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """All there are at the start, because some may have lost their Server; then what changes."""
    driver = context.drivers[view.plane]
    while True:
        try:
            for machine_id in await driver.machines():
                yield _key_of(view, machine_id)
            async for machine_id in driver.changes():
                yield _key_of(view, machine_id)
        except DriverError as error:  # an engine that is away must not end the process
            _log.warning("no news of the machines of %s: %s", view.plane, error)
        await asyncio.sleep(RECHECK_S)


async def remove_strangers(context: Context, key: Key) -> Outcome:
    """Machines of the name that no Server asked for; the one that it did ask for stays."""
    view = context.planes.require(key.plane)
    server = view.read(SERVER).get(key.ref)
    own_id = machine_id_of(server) if server is not None else ""
    left = await _remove_strangers(view, context.drivers[key.plane], key.ref, own_id)
    return Requeue(RECHECK_S) if left else Done()


async def strangers(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Again and again the machines that belong to no Server."""
    async for wanted, found in _sweep(context, view):
        for machine_id in sorted(found - wanted):
            yield _key_of(view, machine_id)


async def missing(context: Context, view: CachedClient) -> AsyncIterator[Key]:
    """Again and again the Servers without a machine."""
    async for wanted, found in _sweep(context, view):
        for machine_id in sorted(wanted - found):
            yield _key_of(view, machine_id)


async def _sweep(context: Context, view: CachedClient) -> AsyncIterator[tuple[set[str], set[str]]]:
    """The machines that Servers name, and those that there are: two lists of names, instead of a
    look at each machine."""
    while True:
        await asyncio.sleep(SWEEP_S)
        try:
            found = set(await context.drivers[view.plane].machines())
        except DriverError as error:
            _log.warning("the machines of %s are not seen: %s", view.plane, error)
            continue
        yield {f"{ref}/{uid}" for ref, uid in view.cached(SERVER).uids().items()}, found


def _key_of(view: CachedClient, machine_id: str) -> Key:
    namespace, name, _ = machine_id.split("/")
    return Key(view.plane, Ref(namespace, name))


CONTROLLER = Controller(
    name="machine",
    role="cell",
    reconcile=reconcile,
    edges=(for_(SERVER, update_filter=concerns_driver), *wakes(WAITING)),
    indexes=(WAITING, MAY_SERVE_SERVERS),
    finalizers=(labels.DRIVER_FINALIZER,),
    external_sources=(machine_news, missing, find_lost_machines),
    workers=MANY_WORKERS,
)

SWEEPER = Controller(
    name="machine-sweeper",
    role="cell",
    reconcile=remove_strangers,
    edges=(reads(SERVER),),
    external_sources=(strangers,),
    workers=1,
)

CONTROLLERS = (CONTROLLER, SWEEPER)
