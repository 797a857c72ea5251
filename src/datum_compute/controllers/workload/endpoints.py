"""Publishing controller: publishes the ports of a deployment and writes their URLs to its status.

The backends of a port are the machines of the instances that accept connections. While the
deployment is suspended or stopped, connections are refused and wake no machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.scale_to_zero import duration_seconds
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.traffic import Backend, SleepPolicy, owner_name
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.network.addresses import addresses_of
from datum_compute.planning.rollout.machine import machine_id_of
from datum_compute.planning.rollout.server import (
    accepts_connections,
    last_ports,
    plan_endpoints,
    published_ports,
    recovers_from_crash,
)
from datum_compute.planning.rollout.suspension import halt_reason
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import value_changed

# How long a connection waits for its machine to wake.
WAKE_S = 10.0


async def reconcile(context: Context, key: Key) -> Outcome:
    client, owner = context.planes.require(key.plane), owner_name(key.plane, key.ref)
    traffic = context.traffic
    if traffic is None:
        return Done()
    deployment = client.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        await traffic.withdraw(owner)
        return Done()
    ports, last = published_ports(deployment), last_ports(deployment)
    await traffic.withdraw(owner, [port.name for port in ports])
    servers = client.read(SERVER)
    is_halted = halt_reason(deployment.spec) is not None
    traffic.refuse(owner, refused=is_halted)
    serving = [
        i
        for i in _instances(client, key.ref)
        if not is_halted and accepts_connections(i, servers.get(ref_of(i)))
    ]
    published = {}
    for port in ports:
        backends = [b for i in serving for b in _backends(client, i, port.name)]
        published[port.name] = await traffic.publish(
            owner, port.name, backends, last.get(port.name, 0)
        )
    return await apply_plan(context.planes, plan_endpoints(key.plane, deployment, published))


def _instances(client: CachedClient, deployment: Ref) -> list[Instance]:
    named = client.read(INSTANCE).list_with_label(labels.DEPLOYMENT_NAME, deployment.name)
    return sorted((i for i in named if i.metadata.namespace == deployment.namespace), key=ref_of)


def _backends(client: CachedClient, instance: Instance, name: str) -> Iterable[Backend]:
    """Yield the backends of an instance for a port name.

    The port number is read from the instance's own Server, because instances with an older template
    may use another number.
    """
    server = client.read(SERVER).get(ref_of(instance))
    addresses = addresses_of(instance.status.network_interfaces)
    if server is None or server.is_terminating or not addresses:
        return
    for container in server.spec.containers:
        for port in container.ports:
            if port.name == name:
                yield Backend(
                    client.plane,
                    machine_id_of(server),
                    addresses[0],
                    port.port,
                    sleep_policy(server.spec),
                    server.status.phase == "Sleeping",
                )


def sleep_policy(spec: ServerSpec) -> SleepPolicy | None:
    """Return the sleep policy of a machine.

    In mode ``stop`` a connection may arrive while the machine is still stopping, so the grace
    period is added to the time that the connection waits.
    """
    scale_to_zero = spec.scale_to_zero
    if scale_to_zero is None:
        return None
    stop_s = spec.termination_grace_period_seconds if scale_to_zero.mode == "stop" else 0
    return SleepPolicy(
        duration_seconds(scale_to_zero.idle_after), scale_to_zero.mode, WAKE_S + stop_s
    )


def map_instance(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    metadata = change.latest.metadata
    if name := metadata.labels.get(labels.DEPLOYMENT_NAME):
        yield Key(client.plane, Ref(metadata.namespace, name))


def map_server(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    instance = client.read_unsynced(INSTANCE).get(ref_of(change.latest))
    if instance is not None:
        yield from map_instance(client, ObjectChange(None, instance))


CONTROLLER = Controller(
    name="publishing",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT),
        watches(INSTANCE, map_instance),
        watches(
            SERVER,
            map_server,
            # Other changes of a Server that matter also change its Instance.
            update_filter=value_changed(recovers_from_crash),
            create_filter=recovers_from_crash,
        ),
    ),
)
