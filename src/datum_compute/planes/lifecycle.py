"""Lifecycle of project planes: the interface to create and delete them, and draining.

To drain a plane is to delete its objects with finalizers, so that controllers clean up what belongs
to them. Draining reads from the plane, not from a cache, because these objects may belong to
controllers of another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from datum_compute.api import labels
from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.client.client import Client
from datum_compute.runtime.controller import Controller


class PlaneLifecycle(Protocol):
    """Implemented by the embedded server and the simulator. Milo manages its own planes.

    All methods are idempotent.
    """

    async def create(self, plane: PlaneName, owner: str) -> None:
        """Create the plane with its initial objects. ``owner``, if not empty, administers it."""

    async def drain(self, plane: PlaneName) -> Sequence[str]:
        """Delete the objects with finalizers. Return descriptions of those that still exist."""

    async def delete(self, plane: PlaneName) -> None:
        """Delete the plane with its data, and mark what other planes hold for it as removed."""


class HeldObject(NamedTuple):
    """An object whose finalizers keep it on its plane."""

    kind: KindInfo[Any]
    ref: Ref

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.ref}"


@dataclass(frozen=True, slots=True)
class FinalizedKinds:
    """Kinds to which controllers add finalizers on planes of a role, and these finalizers."""

    kinds: tuple[KindInfo[Any], ...]
    finalizers: frozenset[str]

    def has_finalizer(self, obj: ApiObject) -> bool:
        return not self.finalizers.isdisjoint(obj.metadata.finalizers)


def finalized_kinds_on(role: str, controllers: Sequence[Controller[Any]]) -> FinalizedKinds:
    """Return the primary kinds of the controllers with finalizers on planes of a role."""
    finalizing = [c for c in controllers if c.role == role and c.finalizers]
    kinds = {c.kind.resource: c.kind for c in finalizing if c.kind is not None}
    finalizers = frozenset(name for c in finalizing for name in c.finalizers)
    return FinalizedKinds(tuple(kinds.values()), finalizers)


async def mark_revoked(client: Client, *, revoked: bool) -> None:
    """Set or remove the annotation that revokes the plane.

    While it is set, controllers of all processes create no objects on the plane.
    """
    patch = {"metadata": {"annotations": {labels.REVOKED: "true" if revoked else None}}}
    with suppress(NotFound):
        await client.patch(NAMESPACE, Ref("", "default"), patch)


async def delete_held_objects(client: Client, finalized: FinalizedKinds) -> list[HeldObject]:
    """Delete the objects with finalizers. Return those that existed."""
    found = []
    for kind in finalized.kinds:
        for obj in (await client.list(kind)).items:
            if finalized.has_finalizer(obj):
                found.append(HeldObject(kind, ref_of(obj)))
                await _delete_object(client, kind, obj)
    return found


async def _delete_object(client: Client, kind: KindInfo[Any], obj: ApiObject) -> None:
    if obj.is_terminating:
        return
    with suppress(NotFound, Conflict):
        await client.delete(kind, ref_of(obj), uid=obj.metadata.uid)
