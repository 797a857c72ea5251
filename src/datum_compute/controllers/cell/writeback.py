"""Cell Instance -> its copy on the hub, under the hub's deployment of the same name. A copy that
says it is of this cell and is not leaves the hub: a cell may come back without its store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import cell_plane
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.projection import plan_withdrawal, plan_writeback
from datum_compute.runtime.controller import Controller, for_, reads, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Later, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.need(key.plane), context.planes.hub
    instance = view.read(INSTANCE).get(key.ref)
    if instance is None:
        return await _withdraw(context, view, key)
    owner = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    plan = plan_writeback(
        key.plane,
        instance,
        hub.read(DEPLOYMENT).get(Ref(key.ref.namespace, owner)),
        hub.read(INSTANCE).get(key.ref),
    )
    return await carry_out(context.planes, plan)


async def _withdraw(context: Context, view: View, key: Key) -> Outcome:
    """A cell that came back empty does not know what it has reported; the hub does. Only what the
    cell itself, asked now, does not have."""
    plan = plan_withdrawal(key.plane, context.planes.hub.read(INSTANCE).get(key.ref))
    if plan.actions and await view.live(INSTANCE, key.ref) is not None:
        return Later(1)
    return await carry_out(context.planes, plan)


def from_hub_copy(_view: View, change: Change[Any]) -> Iterable[Key]:
    """The cell that wrote the copy puts it right if somebody else changed it, also if what was
    changed is the name of the cell."""
    seen = [copy for copy in (change.old, change.new) if copy is not None]
    cells = dict.fromkeys(copy.metadata.labels.get(labels.CELL) for copy in seen)
    for cell in filter(None, cells):
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
