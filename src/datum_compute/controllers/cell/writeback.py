"""Cell Instance -> its copy on the hub, under the hub's deployment of the same name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import cell_plane
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.projection import plan_stray_copy, plan_writeback
from datum_compute.runtime.controller import Controller, for_, reads, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.need(key.plane), context.planes.hub
    instance = view.read(INSTANCE).get(key.ref)
    if instance is None:
        return await _remove_stray(context, view, key)
    owner = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    plan = plan_writeback(
        key.plane,
        instance,
        hub.read(DEPLOYMENT).get(Ref(key.ref.namespace, owner)),
        hub.read(INSTANCE).get(key.ref),
    )
    return await carry_out(context.planes, plan)


async def _remove_stray(context: Context, view: View, key: Key) -> Outcome:
    """A cell that came back empty does not know what it has reported; the hub does. The cell is
    asked itself: an instance that only our view lacks is no reason to remove anything."""
    copy = context.planes.hub.read(INSTANCE).get(key.ref)
    plan = plan_stray_copy(key.plane, copy)
    if plan.actions and await view.live(INSTANCE, key.ref) is None:
        return await carry_out(context.planes, plan)
    return Done()


def from_hub_copy(_view: View, change: Change[Any]) -> Iterable[Key]:
    """The cell that wrote the copy puts it right if somebody else changed it."""
    cell = change.latest.metadata.labels.get(labels.CELL)
    if cell:
        yield Key(cell_plane(cell), ref_of(change.latest))


CONTROLLER = Controller(
    name="writeback",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE),
        reads(DEPLOYMENT, on="hub"),
        watches(INSTANCE, from_hub_copy, on="hub"),
    ),
    finalizers=(labels.INSTANCE_FINALIZER,),
)
