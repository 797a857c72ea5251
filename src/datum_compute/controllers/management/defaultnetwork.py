"""Namespace ``default`` of a project -> the network that every project has.

Users may delete it: it goes when nothing uses it any more, and then there is a new one, as with the
service account that every namespace has. One that somebody made in its place is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import NAMESPACE, NETWORK
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planes.catalogue import default_network
from datum_compute.planning.actions import Create, Plan
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange

_WANTED = default_network()
_NAMESPACE = Ref("", _WANTED.metadata.namespace)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    namespace = view.read(NAMESPACE).get(key.ref)
    if key.ref != _NAMESPACE or namespace is None or namespace.is_terminating:
        return Done()
    if labels.REVOKED in namespace.metadata.annotations:
        return Done()
    if view.read(NETWORK).get(ref_of(_WANTED)) is not None:
        return Done()
    wanted = Create(key.plane, NETWORK, _WANTED, "every project has one")
    return await carry_out(context.planes, Plan((wanted,)))


def from_network(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Its going."""
    if change.new is None and ref_of(change.latest) == ref_of(_WANTED):
        yield Key(view.plane, _NAMESPACE)


CONTROLLER = Controller(
    name="default-network",
    role="project",
    reconcile=reconcile,
    edges=(for_(NAMESPACE), watches(NETWORK, from_network)),
    workers=1,
)
