"""OrderedSet -> Members, and a stand-in for what would start them."""

from __future__ import annotations

from datum_compute.api.codec import plain
from datum_compute.api.meta import ref_of
from datum_compute.planes.planes import Planes
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_, owns
from examples.ordered_set.kinds import FINALIZER, MEMBER, ORDERED_SET, OrderedSet
from examples.ordered_set.plan import Plan, plan_ordered_set

# Members wake their set; this repairs what nobody told us.
RECHECK_S = 30.0
START_S = 0.5


async def reconcile(planes: Planes, key: Key) -> Outcome:
    view = planes.require(key.plane)
    desired = view.read(ORDERED_SET).get(key.ref)
    if desired is None:
        return Done()
    members = view.read(MEMBER).owned_by(desired.metadata.uid)
    plan = plan_ordered_set(desired, members)
    await carry_out(view, desired, plan)
    return Requeue(RECHECK_S) if plan.is_waiting else Done()


async def carry_out(view: CachedClient, desired: OrderedSet, plan: Plan) -> None:
    """Each write is of the object as it was seen, so that doing it late or twice does no harm."""
    ref, version = ref_of(desired), desired.metadata.resource_version
    if plan.create is not None:
        await view.create(MEMBER, plan.create)
    if plan.delete is not None:
        seen = plan.delete.metadata
        await view.delete(MEMBER, ref_of(plan.delete), uid=seen.uid, version=seen.resource_version)
    if plan.guard or plan.release:
        others = [name for name in desired.metadata.finalizers if name != FINALIZER]
        finalizers = [*others, FINALIZER] if plan.guard else others
        metadata = {"finalizers": finalizers or None, "resourceVersion": version}
        await view.patch(ORDERED_SET, ref, {"metadata": metadata})
    elif plan.status != desired.status:
        await view.patch_status(ORDERED_SET, ref, plain(plan.status), version=version)


async def start(planes: Planes, key: Key) -> Outcome:
    """In place of a machine: a member is ready a moment after it was made."""
    view = planes.require(key.plane)
    member = view.read(MEMBER).get(key.ref)
    if member is None or member.status.ready:
        return Done()
    if member.metadata.annotations.get("started") != "true":
        await view.patch(MEMBER, key.ref, {"metadata": {"annotations": {"started": "true"}}})
        return Requeue(START_S)
    version = member.metadata.resource_version
    await view.patch_status(MEMBER, key.ref, {"ready": True}, version=version)
    return Done()


def controllers(role: str) -> tuple[Controller[Planes], ...]:
    """Both, for planes of a role."""
    return (
        Controller(
            name="ordered-set",
            role=role,
            reconcile=reconcile,
            edges=(for_(ORDERED_SET), owns(MEMBER)),
            finalizers=(FINALIZER,),
        ),
        Controller(name="starter", role=role, reconcile=start, edges=(for_(MEMBER),)),
    )
