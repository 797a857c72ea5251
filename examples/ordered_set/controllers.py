"""Two controllers: one creates the Members of an OrderedSet, the other simulates their start."""

from __future__ import annotations

from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ref_of
from datum_compute.planes.planes import Planes
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_, owns
from examples.ordered_set.kinds import FINALIZER, MEMBER, ORDERED_SET, OrderedSet
from examples.ordered_set.plan import Plan, plan_ordered_set

# Events of Members enqueue their set. The requeue covers events that were lost.
RECHECK_S = 30.0
START_S = 0.5


async def reconcile(planes: Planes, key: Key) -> Outcome:
    client = planes.require(key.plane)
    desired = client.read(ORDERED_SET).get(key.ref)
    if desired is None:
        return Done()
    members = client.read(MEMBER).list_owned_by(desired.metadata.uid)
    plan = plan_ordered_set(desired, members)
    await carry_out(client, desired, plan)
    return Requeue(RECHECK_S) if plan.is_waiting else Done()


async def carry_out(client: CachedClient, desired: OrderedSet, plan: Plan) -> None:
    """Apply the plan. Each write is safe to repeat.

    Updates and deletes contain the version that was read, and a new Member has a fixed name.
    """
    ref, version = ref_of(desired), desired.metadata.resource_version
    if plan.create is not None:
        await client.create(MEMBER, plan.create)
    if plan.delete is not None:
        seen = plan.delete.metadata
        await client.delete(
            MEMBER, ref_of(plan.delete), uid=seen.uid, version=seen.resource_version
        )
    if plan.guard or plan.release:
        others = [name for name in desired.metadata.finalizers if name != FINALIZER]
        finalizers = [*others, FINALIZER] if plan.guard else others
        metadata = {"finalizers": finalizers or None, "resourceVersion": version}
        await client.patch(ORDERED_SET, ref, {"metadata": metadata})
    elif plan.status != desired.status:
        await client.patch_status(ORDERED_SET, ref, to_json(plan.status), version=version)


async def start(planes: Planes, key: Key) -> Outcome:
    """Mark a Member as ready START_S after its creation. No machine is started."""
    client = planes.require(key.plane)
    member = client.read(MEMBER).get(key.ref)
    if member is None or member.status.ready:
        return Done()
    if member.metadata.annotations.get("started") != "true":
        await client.patch(MEMBER, key.ref, {"metadata": {"annotations": {"started": "true"}}})
        return Requeue(START_S)
    version = member.metadata.resource_version
    await client.patch_status(MEMBER, key.ref, {"ready": True}, version=version)
    return Done()


def controllers(role: str) -> tuple[Controller[Planes], ...]:
    """Return both controllers for planes of a role."""
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
