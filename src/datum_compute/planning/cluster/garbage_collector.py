"""Garbage collection: which objects are deleted because of their owners, as in Kubernetes.

- An object is deleted when every owner that it names is gone. If only some are gone, their
  references are removed.
- An owner is looked up in the namespace of the object, or without a namespace if its kind has
  none. An owner counts as present if its kind is not served, or if its kind is namespaced and the
  object is not: such a reference can never be resolved.
- Foreground: the owner stays until its dependents are gone, at least those that block it.
- Orphan: the dependents lose their reference to the owner, then the owner is released.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from datum_compute.api.inventory import StoredObject
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta.objects import KindInfo, OwnerReference


@dataclass(frozen=True, slots=True)
class ObservedOwner:
    """An owner reference with the object that has the name of the owner, if there is one.

    ``kind`` is None if the kind is not served.
    """

    reference: OwnerReference
    kind: KindInfo[Any] | None
    found: StoredObject | None

    @property
    def object(self) -> StoredObject | None:
        """The owner itself; None if the object of that name has another uid."""
        return self.found if self.found and self.found.uid == self.reference.uid else None


class OwnerState(Enum):
    PRESENT = auto()
    WAITING = auto()  # terminating, until its dependents are gone
    GONE = auto()


@dataclass(frozen=True, slots=True)
class RemoveOwners:
    """Remove the references to owners with these uids from an object."""

    object: StoredObject
    uids: frozenset[str]


@dataclass(frozen=True, slots=True)
class DeleteDependent:
    """Delete an object. ``policy`` states what happens to its own dependents."""

    object: StoredObject
    policy: str


@dataclass(frozen=True, slots=True)
class ReleaseOwner:
    """Remove the finalizer of a foreground or orphan deletion from an owner."""

    object: StoredObject
    finalizer: str


GarbageAction = RemoveOwners | DeleteDependent | ReleaseOwner


def owner_state(namespace: str, owner: ObservedOwner) -> OwnerState:
    """Return the state of an owner; ``namespace`` is that of the object that names the owner."""
    if owner.kind is None or is_unreachable(namespace, owner):
        return OwnerState.PRESENT
    if owner.object is None:
        return OwnerState.GONE
    is_waiting = owner.object.terminating and FOREGROUND_FINALIZER in owner.object.finalizers
    return OwnerState.WAITING if is_waiting else OwnerState.PRESENT


def is_unreachable(namespace: str, owner: ObservedOwner) -> bool:
    """Return True if an object without a namespace names an owner of a namespaced kind."""
    return owner.kind is not None and owner.kind.namespaced and not namespace


def plan_collection(
    dependent: StoredObject, owners: Sequence[ObservedOwner], *, has_dependents: bool
) -> list[GarbageAction]:
    """Delete an object if each of its owners is gone or waits for its dependents.

    If an owner waits, the object is deleted in the foreground, so that the owner also waits for the
    dependents of the object.
    """
    states = [(owner, owner_state(dependent.ref.namespace, owner)) for owner in owners]
    gone = frozenset(o.reference.uid for o, state in states if state is OwnerState.GONE)
    if any(state is OwnerState.PRESENT for _, state in states):
        return [RemoveOwners(dependent, gone)] if gone else []
    if not states:
        return []
    is_awaited = any(state is OwnerState.WAITING for _, state in states)
    policy = "Foreground" if is_awaited and has_dependents else _requested_policy(dependent)
    return [DeleteDependent(dependent, policy)]


def plan_orphaning(owner: StoredObject, dependents: Sequence[StoredObject]) -> list[GarbageAction]:
    """Remove the references to the owner from its dependents, then release the owner."""
    removals = [RemoveOwners(dependent, frozenset({owner.uid})) for dependent in dependents]
    return [*removals, ReleaseOwner(owner, ORPHAN_FINALIZER)]


def is_dependent(owner: StoredObject, owners: Sequence[ObservedOwner]) -> bool:
    """Return True if one of the resolved references is to this owner.

    A reference with the same uid may not resolve, for example from another namespace.
    """
    return any(o.reference.uid == owner.uid and o.object is not None for o in owners)


def plan_foreground_release(
    owner: StoredObject, dependents: Sequence[StoredObject]
) -> list[GarbageAction]:
    """Release the owner when none of its remaining dependents blocks its deletion."""
    for dependent in dependents:
        if any(o.uid == owner.uid and o.block_owner_deletion for o in dependent.owners):
            return []
    return [ReleaseOwner(owner, FOREGROUND_FINALIZER)]


def _requested_policy(held: StoredObject) -> str:
    """Return the policy of an earlier deletion request, which the object's finalizers record."""
    if ORPHAN_FINALIZER in held.finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in held.finalizers else "Background"
