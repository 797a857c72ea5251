"""Plans the next step of an OrderedSet. Pure.

Order guarantees:

- Member n is created only while all Members with lower ordinals are ready.
- Scaling down deletes the Member with the highest ordinal first.
- An outdated Member (one with another image than the set) is replaced only while all Members are
  ready, the highest ordinal first. An outdated Member that is not ready is replaced without
  waiting for it, because it may never become ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from examples.ordered_set.kinds import (
    FINALIZER,
    ORDERED_SET,
    Member,
    MemberSpec,
    OrderedSet,
    OrderedSetStatus,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """At most one action, and the status before the action."""

    status: OrderedSetStatus
    create: Member | None = None
    delete: Member | None = None
    guard: bool = False  # add our finalizer to the set
    release: bool = False  # remove our finalizer from the set

    @property
    def is_waiting(self) -> bool:
        """True if Members must start or terminate before the next action."""
        settled = self.status.replicas == self.status.ready_replicas == self.status.updated_replicas
        return not settled and self.create is None and self.delete is None


def plan_ordered_set(desired: OrderedSet, members: Sequence[Member]) -> Plan:
    status = _status(desired, members)
    wanted = 0 if desired.is_terminating else desired.spec.replicas
    if FINALIZER not in desired.metadata.finalizers:
        return Plan(status, guard=not desired.is_terminating)
    by_ordinal = {member.spec.ordinal: member for member in members}
    highest = max(by_ordinal, default=-1)
    if highest >= wanted:
        return Plan(status, delete=_unless_going(by_ordinal[highest]))
    if desired.is_terminating:
        return Plan(status, release=True)
    for ordinal in range(wanted):
        member = by_ordinal.get(ordinal)
        if member is None:
            return Plan(status, create=_member(desired, ordinal))
        if member.is_terminating or not member.status.ready:
            outdated = member.spec.image != desired.spec.image
            return Plan(status, delete=_unless_going(member) if outdated else None)
    outdated_members = [m for m in members if m.spec.image != desired.spec.image]
    last = max(outdated_members, key=lambda m: m.spec.ordinal, default=None)
    return Plan(status, delete=last)


def _unless_going(member: Member) -> Member | None:
    return None if member.is_terminating else member


def _member(owner: OrderedSet, ordinal: int) -> Member:
    return Member(
        metadata=ObjectMeta(
            name=f"{owner.metadata.name}-{ordinal}",
            namespace=owner.metadata.namespace,
            owner_references=[owner_reference(owner, ORDERED_SET)],
        ),
        spec=MemberSpec(ordinal=ordinal, image=owner.spec.image),
    )


def _status(desired: OrderedSet, members: Sequence[Member]) -> OrderedSetStatus:
    present = [member for member in members if not member.is_terminating]
    return OrderedSetStatus(
        replicas=len(present),
        ready_replicas=sum(member.status.ready for member in present),
        updated_replicas=sum(member.spec.image == desired.spec.image for member in present),
        observed_generation=desired.metadata.generation,
    )
