"""The seam to whoever keeps the planes of projects: the embedded server, or a simulated one.

On real planes, such as Milo's, somebody else makes them, and the controller that needs this does
not run. Everything here may be asked again and again.

Empties a plane that is being revoked of what controllers hold back there.

Asks the plane itself, not a cache: what is held may belong to controllers of another process.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from datum_compute.api import labels
from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.client.client import Client
from datum_compute.runtime.controller import Controller


class PlaneLifecycle(Protocol):
    async def create(self, plane: PlaneName, owner: str) -> None:
        """The plane is there, with all that a project has from its first moment; ``owner`` is the
        user who administers it, or empty."""

    async def drain(self, plane: PlaneName) -> Sequence[str]:
        """Everything that is held back in the plane is asked to go; names what is still there."""

    async def delete(self, plane: PlaneName) -> None:
        """The plane is gone with all its data, and other planes know that."""


@dataclass(frozen=True, slots=True)
class FinalizedKinds:
    """Kinds whose objects controllers hold back on planes of a role, and with what."""

    kinds: tuple[KindInfo[Any], ...]
    finalizers: frozenset[str]

    def holds(self, obj: ApiObject) -> bool:
        return not self.finalizers.isdisjoint(obj.metadata.finalizers)


def finalized_kinds_on(role: str, controllers: Sequence[Controller[Any]]) -> FinalizedKinds:
    holding = [c for c in controllers if c.role == role and c.finalizers]
    kinds = {c.kind.resource: c.kind for c in holding if c.kind is not None}
    return FinalizedKinds(
        tuple(kinds.values()), frozenset(f for c in holding for f in c.finalizers)
    )


async def mark_revoked(client: Client, *, revoked: bool) -> None:
    """Tell those who make things anew, in whatever process, to leave that; or to go on."""
    mark = {"metadata": {"annotations": {labels.REVOKED: "true" if revoked else None}}}
    with suppress(NotFound):
        await client.patch(NAMESPACE, Ref("", "default"), mark)


async def list_objects(
    client: Client, kinds: Sequence[KindInfo[Any]]
) -> list[tuple[KindInfo[Any], ApiObject]]:
    """All objects of the kinds, each with its kind."""
    return [(kind, obj) for kind in kinds for obj in (await client.list(kind)).items]


async def delete_objects(
    client: Client, objects: Sequence[tuple[KindInfo[Any], ApiObject]]
) -> None:
    """Delete exactly these objects, not others that have their names by now."""
    for kind, obj in objects:
        await _delete(client, kind, obj)


async def delete_held_objects(client: Client, held_back: FinalizedKinds) -> list[str]:
    """Delete whatever is held back on the plane; names what is there still."""
    found = []
    for kind in held_back.kinds:
        for obj in (await client.list(kind)).items:
            if held_back.holds(obj):
                found.append(f"{kind.kind} {ref_of(obj)}")
                await _delete(client, kind, obj)
    return found


async def _delete(client: Client, kind: KindInfo[Any], obj: ApiObject) -> None:
    if obj.is_terminating:
        return
    try:
        await client.delete(kind, ref_of(obj), uid=obj.metadata.uid)
    except (NotFound, Conflict):
        return  # the next look sees what is there now
