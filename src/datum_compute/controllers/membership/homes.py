"""Namespaces of the hub -> which projects a cell works on: those that have a home there.

A cell knows of no platform, and needs a project only for the quota claims of its instances.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import decoded_project, encoded_cluster
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, project_plane
from datum_compute.controllers.context import Context
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    """The key is a project."""
    membership = context.membership
    assert membership is not None, "projects come and go only where planes are many"
    plane = project_plane(key.ref.name)
    cluster = encoded_cluster(key.ref.name)
    homes = context.planes.hub.read(NAMESPACE).with_label(labels.UPSTREAM_CLUSTER, cluster)
    if homes:
        await membership.engage(plane, entitled=True)
    else:
        membership.disengage(plane)
    return Done()


def to_project(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Also the one that a home said before."""
    for home in filter(None, (change.new, change.old)):
        name = decoded_project(home.metadata.labels.get(labels.UPSTREAM_CLUSTER, ""))
        if name:
            yield Key(HUB, Ref("", name))


CONTROLLER = Controller(
    name="membership",
    role="hub",
    reconcile=reconcile,
    edges=(watches(NAMESPACE, to_project),),
    workers=1,
)
