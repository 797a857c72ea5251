"""Reads details of a cause from the hub or the cell, if the kubeconfig has a context for it.

The project has copies; the cell has the state of the machine, and the hub the reachability of the
cell. Without a context or without permission, the result contains the project's view only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import NETWORK_READY, Instance
from datum_compute.api.conditions import TRUE, Reason, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.labels import CELL, WORKLOAD_UID
from datum_compute.api.meta.codec import DecodeError
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.cli.connect.session import Session
from datum_compute.client.auth.kubeconfig import (
    KubeconfigError,
    build_client,
    connection_of,
    load_kubeconfig,
)
from datum_compute.client.client import Client
from datum_compute.planning.explain.advice import Actor, advice_on
from datum_compute.planning.explain.explain import Link, deployment_ref, explain_instance

_READ_ERRORS = (KubeconfigError, ApiError, Unreachable, DecodeError, ValueError)


async def links_on_other_planes(
    session: Session, cause: Link, instances: list[Instance]
) -> list[tuple[str, Link]]:
    """Return further links behind the cause, each with its plane."""
    found = next((i for i in instances if i.metadata.name == cause.ref.name), None)
    cell = found.metadata.labels.get(CELL, "") if found is not None else ""
    if found is None or not cell or not session.kubeconfig_files:
        return []
    try:
        if cause.reason == Reason.CELL_UNREACHABLE:
            return await _from_hub(session, cell)
        return await _from_cell(session, cell, found)
    except _READ_ERRORS:
        return []


@asynccontextmanager
async def _other_plane(session: Session, plane: str) -> AsyncIterator[Client]:
    connection = connection_of(load_kubeconfig(session.kubeconfig_files), plane)
    async with session.environment.open_transport(connection) as transport:
        yield build_client(connection, transport)


async def _from_cell(session: Session, cell: str, copy: Instance) -> list[tuple[str, Link]]:
    plane = cell_plane(cell)
    labels = {WORKLOAD_UID: copy.metadata.labels.get(WORKLOAD_UID, "")}
    async with _other_plane(session, plane) as client:
        own = [
            instance
            for instance in (await client.list(INSTANCE, labels=labels)).items
            if instance.metadata.name == copy.metadata.name
        ]
        if len(own) != 1:
            return []
        servers = (await client.list(SERVER, own[0].metadata.namespace)).items
        deployment = await find_deployment(client, own[0])
    found = explain_instance(own[0], servers, deployment=deployment).links
    return [(plane, as_seen_from(copy, plane, link)) for link in found]


async def find_deployment(client: Client, instance: Instance) -> WorkloadDeployment | None:
    """The deployment of an instance whose network is not ready: it records the reason."""
    condition = find_condition(instance.status.conditions, NETWORK_READY)
    if condition is None or condition.status == TRUE:
        return None
    try:
        return await client.get(DEPLOYMENT, deployment_ref(instance))
    except ApiError:
        return None  # the explanation is less detailed without it


def as_seen_from(copy: Instance, plane: PlaneName, link: Link) -> Link:
    """Adapt the command of a link: the user acts in the project, but reads on the cell."""
    if link.actor is Actor.USER:
        namespace_option = f"--namespace={copy.metadata.namespace}"
        return replace(
            link,
            command=link.command.replace(f"--namespace={link.ref.namespace}", namespace_option),
        )
    return replace(link, command=link.command.replace("kubectl ", f"kubectl --context={plane} ", 1))


async def _from_hub(session: Session, cell: str) -> list[tuple[str, Link]]:
    async with _other_plane(session, HUB) as client:
        cluster = await client.get(CLUSTER, Ref("", cell))
    ready = find_condition(cluster.status.conditions, "Ready")
    if ready is None or ready.status == TRUE:
        return []
    advice = advice_on(Reason.CELL_UNREACHABLE)
    link = Link(
        kind=CLUSTER.kind,
        ref=Ref("", cell),
        condition=ready.type,
        status=ready.status,
        reason=ready.reason,
        message=ready.message,
        since=ready.last_transition_time,
        actor=advice.actor,
        waiting_for=advice.waiting_for,
        command=f"kubectl --context={HUB} describe cluster {cell}",
    )
    return [(HUB, link)]
