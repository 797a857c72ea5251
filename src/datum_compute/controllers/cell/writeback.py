"""Copies the Instances of a cell to the hub. The rules are in planning/federation/instances.py.

A copy on the hub that names this cell is deleted if the cell does not have the instance. The
instance may have been deleted while the hub was unreachable, or the cell may have lost its store.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import AlreadyExists
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import cell_plane
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.federation.instances import (
    OWNER_S,
    cells_of_copy,
    is_worth_telling,
    plan_withdrawal,
    plan_writeback,
)
from datum_compute.planning.initial_status import INITIAL_STATUS_S, age_s
from datum_compute.planning.rollout.gates import are_going
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
    if copy is None and not is_worth_telling(instance, context.now()):
        return Requeue(INITIAL_STATUS_S)
    if copy is None and deployment is not None and age_s(instance, context.now()) > OWNER_S:
        # An instance of this age had a copy. After a disconnect the cached deployments of the hub
        # may be older than the cached copies. A copy whose owner is gone would be collected and
        # created again without end.
        deployment = await hub.get_uncached(DEPLOYMENT, ref_of(deployment))
    try:
        plan = plan_writeback(key.plane, instance, deployment, copy)
        return await carry_out(context.planes, plan)
    except AlreadyExists:
        # The cell label of the copy was edited. This cell watches only copies with its label.
        copy = await hub.get_uncached(INSTANCE, key.ref)
        plan = plan_writeback(key.plane, instance, deployment, copy)
        return await carry_out(context.planes, plan)


async def _withdraw(context: Context, view: CachedClient, key: Key) -> Outcome:
    """Delete a copy only after a live read from the cell confirms that the original is gone."""
    plan = plan_withdrawal(key.plane, context.planes.hub.read(INSTANCE).get(key.ref))
    if plan.actions and await view.get_uncached(INSTANCE, key.ref) is not None:
        return Requeue(1)
    return await carry_out(context.planes, plan)


def concerns_copy(_old: Instance, new: Instance) -> bool:
    """Return False if all scheduling gates are cleared, because they are removed next."""
    return not (new.spec.controller.scheduling_gates and are_going(new))


def from_hub_copy(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a copy to the cells that it names and named, so that its cell restores edited fields."""
    seen = [copy for copy in (change.old, change.new) if copy is not None]
    for cell in dict.fromkeys(name for copy in seen for name in cells_of_copy(copy)):
        try:
            plane = cell_plane(cell)
        except ValueError:  # an edited label may be no name of a cell
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
    modes=(FEDERATED,),
)
