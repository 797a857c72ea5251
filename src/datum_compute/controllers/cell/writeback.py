"""Cell Instance -> its copy on the hub, under the hub's deployment of the same name. A copy that
says it is of this cell and is not leaves the hub: its instance went, perhaps while the hub was not
to be reached, or the cell came back without its store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import AlreadyExists
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import cell_plane
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.firstword import FIRST_WORD_S, age_s
from datum_compute.planning.gates import are_going
from datum_compute.planning.projection import (
    OWNER_S,
    cells_of_copy,
    is_worth_telling,
    plan_withdrawal,
    plan_writeback,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.require(key.plane), context.planes.hub
    instance = view.read(INSTANCE).get(key.ref)
    if instance is None:
        return await _withdraw(context, view, key)
    owner = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    deployment = hub.read(DEPLOYMENT).get(Ref(key.ref.namespace, owner))
    copy = hub.read(INSTANCE).get(key.ref)
    if copy is None and not is_worth_telling(instance, age_s(instance, context.now())):
        return Requeue(FIRST_WORD_S)
    if copy is None and deployment is not None and age_s(instance, context.now()) > OWNER_S:
        # It must have had one. After a silence one view of the hub may be older than another: what
        # it shows as there would be made under a deployment that is gone, and collected, for ever.
        deployment = await hub.get_uncached(DEPLOYMENT, ref_of(deployment))
    try:
        plan = plan_writeback(key.plane, instance, deployment, copy)
        return await carry_out(context.planes, plan)
    except AlreadyExists:
        # Somebody took our name off it, and a cell that sees its own part only did not see it.
        copy = await hub.get_uncached(INSTANCE, key.ref)
        plan = plan_writeback(key.plane, instance, deployment, copy)
        return await carry_out(context.planes, plan)


async def _withdraw(context: Context, view: CachedClient, key: Key) -> Outcome:
    """The cell need not know what it has reported; the hub does. Only what the cell itself, asked
    now, does not have."""
    plan = plan_withdrawal(key.plane, context.planes.hub.read(INSTANCE).get(key.ref))
    if plan.actions and await view.get_uncached(INSTANCE, key.ref) is not None:
        return Requeue(1)
    return await carry_out(context.planes, plan)


def concerns_copy(_old: Instance, new: Instance) -> bool:
    """Not that its gates are clear: they go in the next moment."""
    return not (new.spec.controller.scheduling_gates and are_going(new))


def from_hub_copy(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The cell that wrote the copy puts it right if somebody else changed it, also if what was
    changed is the name of the cell."""
    seen = [copy for copy in (change.old, change.new) if copy is not None]
    for cell in dict.fromkeys(name for copy in seen for name in cells_of_copy(copy)):
        try:
            plane = cell_plane(cell)
        except ValueError:  # somebody wrote something there
            continue
        yield Key(plane, ref_of(change.latest))


CONTROLLER = Controller(
    name="writeback",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE, update_filter=concerns_copy),
        reads(DEPLOYMENT, on="hub"),
        watches(INSTANCE, from_hub_copy, on="hub"),
    ),
    finalizers=(labels.INSTANCE_FINALIZER,),
    workers=MANY_WORKERS,
)
