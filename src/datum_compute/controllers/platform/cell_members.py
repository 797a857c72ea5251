"""Cells that have joined: the process is connected to a cell while its Cluster exists.

A key is the Cluster of a cell. The Secret of the same name contains the credentials of the cell.
While the hub is unreachable, existing connections stay open.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE
from datum_compute.api.kinds import CLUSTER, SECRET
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.controllers.context import Context
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

RETRY_S = 5.0

_log = logging.getLogger(__name__)


async def reconcile(context: Context, key: Key) -> Outcome:
    members, plane = context.cell_members, _plane_of_cluster(key.ref.name)
    assert members is not None, "this process does not connect to cells"
    if plane is None:
        return Done()
    hub = context.planes.hub
    cluster = hub.read(CLUSTER).get(key.ref)
    secret = hub.read(SECRET).get(Ref(CREDENTIALS_NAMESPACE, key.ref.name))
    connection = members.find_connection(plane, cluster, secret) if cluster is not None else None
    if cluster is None or connection is None:
        await members.disconnect(plane)
        return Done()
    city = cluster.metadata.labels.get(TOPOLOGY_CITY, cluster.metadata.name)
    try:
        await members.connect(plane, connection, city)
    except (ApiError, Unreachable, ValueError) as error:
        _log.warning("cannot connect to %s: %s", plane, error)
        return Requeue(RETRY_S)
    return Done()


def _plane_of_cluster(name: str) -> PlaneName | None:
    try:
        return cell_plane(name)
    except ValueError:  # a Cluster with a name that no cell can have
        return None


def map_credentials(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(HUB, Ref("", ref_of(change.latest).name))


CONTROLLER = Controller(
    name="cell-members",
    role="hub",
    reconcile=reconcile,
    edges=(for_(CLUSTER), watches(SECRET, map_credentials, namespace=CREDENTIALS_NAMESPACE)),
    workers=1,
)
