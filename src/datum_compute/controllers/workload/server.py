"""Provisioner: creates the Server of an Instance without gates and writes the Instance status.

A second controller reports Servers that do not match exactly one Instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.instance import AVAILABLE, PROGRAMMED, Instance
from datum_compute.api.conditions import Reason, find_condition, is_true
from datum_compute.api.kinds import INSTANCE, INSTANCE_TYPE, SERVER
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.instance_quota import size_on
from datum_compute.planning.rollout.gates import is_quota_denied
from datum_compute.planning.rollout.server import (
    find_owner,
    instance_references,
    plan_provisioning,
    refs_to_reconcile,
)
from datum_compute.planning.rollout.suspension import is_instance_halted
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Terminal,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.event_recorder import EventRequest, reference_to
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import spec_or_metadata_changed

# How often available Instances are checked for a lost Server. An Instance is therefore Available
# for at most 5 s without its Server, even if the event was lost.
LOST_SERVER_CHECK_S = 4.0


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    instance = client.read(INSTANCE).get(key.ref)
    if instance is None:
        return Done()
    server = client.read(SERVER).get(key.ref)
    size = size_on(context, key, instance)
    plan = plan_provisioning(key.plane, instance, server, context.now(), size)
    return await apply_plan(context.planes, plan)


def concerns_machine(old: Instance, new: Instance) -> bool:
    """Return True if an update of the Instance may change its Server or the reported status.

    This filter, ``needs_machine`` and ``concerns_readiness`` depend on which controller writes
    what. Together they save two fifths of all reconciles of an instance, and 5 to 15 % of the time.

    An instance with gates has no machine: only a denied quota is reported. Without gates a status
    update matters only if it changes the addresses, because the provisioner writes the rest.
    """
    before, after = old.spec.controller.scheduling_gates, new.spec.controller.scheduling_gates
    if before and after:
        is_halt_changed = is_instance_halted(old) or is_instance_halted(new)
        return new.is_terminating or is_halt_changed or is_quota_denied(old) or is_quota_denied(new)
    addressed = old.status.network_interfaces != new.status.network_interfaces
    return bool(before or after) or addressed or spec_or_metadata_changed(old, new)


def needs_machine(new: Instance) -> bool:
    """Return False for a new instance with gates that has nothing to report yet."""
    programmed = find_condition(new.status.conditions, PROGRAMMED)
    is_initial = programmed is not None and programmed.reason == Reason.PENDING
    is_reported = is_initial and not is_quota_denied(new)
    return not (new.spec.controller.scheduling_gates and is_reported) or new.is_terminating


def map_server(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a Server to the Instances to reconcile, even if the Server is gone or was edited."""
    instances = client.read_unsynced(INSTANCE)
    for ref in refs_to_reconcile(change.latest, instances.has):
        yield Key(client.plane, ref)


def index_available(instance: Instance) -> Iterable[str]:
    return ("",) if is_true(instance.status.conditions, AVAILABLE) else ()


AVAILABLE_INSTANCES = Index(INSTANCE, "available-instances", index_available)


async def find_available_without_server(
    _context: Context, client: CachedClient
) -> AsyncIterator[Key]:
    """Yield, every LOST_SERVER_CHECK_S, the Instances that are Available and have no Server.

    Without this check a lost event would leave them Available until the next resync. It costs two
    lookups in memory for each Instance and no request.
    """
    while True:
        await asyncio.sleep(LOST_SERVER_CHECK_S)
        servers = client.read_unsynced(SERVER)
        for ref in client.read_unsynced(INSTANCE).refs_by_index(AVAILABLE_INSTANCES.name, ""):
            if not servers.has(ref):
                yield Key(client.plane, ref)


async def check_owner(context: Context, key: Key) -> Outcome:
    """Report a Server that does not match exactly one Instance.

    It matches none, several, or one that another Server matches as well.
    """
    client = context.planes.require(key.plane)
    server = client.read(SERVER).get(key.ref)
    if server is None or server.is_terminating:
        return Done()
    uid = instance_references(server)[0].uid
    owner = find_owner(
        server,
        client.read(INSTANCE).get,
        client.read(SERVER).list_with_label(labels.INSTANCE_UID, uid) if uid else (),
    )
    context.count_mapping("server-owner", owner.match)
    if owner.match.is_hit:
        return Done()
    note = f"{owner.match}: {owner.message}"
    about = reference_to(SERVER, server)
    context.planes.record_event(EventRequest(key.plane, about, "Warning", "AmbiguousOwner", note))
    return Terminal(note)


CONTROLLERS = (
    Controller(
        name="provisioner",
        role="cell",
        reconcile=reconcile,
        edges=(
            for_(INSTANCE, update_filter=concerns_machine, create_filter=needs_machine),
            watches(SERVER, map_server, must_map_to_one="server-to-instance"),
            reads(INSTANCE_TYPE),
        ),
        indexes=(AVAILABLE_INSTANCES,),
        finalizers=(labels.PROVISIONER_FINALIZER,),
        external_sources=(find_available_without_server,),
        workers=MANY_WORKERS,
    ),
    Controller(
        name="serverowner",
        role="cell",
        reconcile=check_owner,
        edges=(for_(SERVER, update_filter=spec_or_metadata_changed), reads(INSTANCE)),
    ),
)
