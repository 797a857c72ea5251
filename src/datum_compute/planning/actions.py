"""What a plan may ask for. Plain data, printable and comparable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import PlaneName


@dataclass(frozen=True, slots=True)
class Create:
    """Its status comes with it where the plane allows that; else a further pass writes it."""

    plane: PlaneName
    kind: KindInfo[Any]
    object: ApiObject
    reason: str
    skipped: bool = False
    with_status: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Only the object with this uid; with a version only in that very state."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    uid: str
    reason: str
    version: str = ""
    skipped: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """A merge patch. Its metadata has the uid if the patch is for one object only, and the version
    if it must not overwrite a concurrent change. ``unconfirmed`` is the text of the warning event
    for a release that its cell has not confirmed."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    patch: JsonObject
    reason: str
    unconfirmed: str = ""


@dataclass(frozen=True, slots=True)
class ListItem:
    """An item of a list, as it was seen: where, and the field that tells it from the others."""

    path: str  # a JSON pointer, such as /spec/controller/schedulingGates/0
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveItems:
    """Items of lists, by their keys and not by a rewrite of the lists: a writer with an old view
    is refused instead of bringing back what others removed."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    uid: str
    items: tuple[ListItem, ...]
    reason: str
    # Fields of the spec that are said in the same write, by name.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Fields of the status to merge, computed from the object at ``version``."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    version: str
    status: JsonObject
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do but to be woken; the reason says for what."""

    reason: str
    skipped: bool = False


Action = Create | Delete | Patch | PatchStatus | RemoveItems | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order. ``requeue_after_s`` bounds a wait whose wake-up edge might be missed."""

    actions: tuple[Action, ...] = ()
    requeue_after_s: float | None = None

    @property
    def is_settled(self) -> bool:
        return not self.actions


def is_skipped(action: Action) -> bool:
    """Planned, but not this time."""
    return isinstance(action, Create | Delete | Wait) and action.skipped


def add_finalizer(
    plane: PlaneName, kind: KindInfo[Any], obj: ApiObject, finalizer: str
) -> list[Action]:
    """The patch that adds a finalizer, if the object lacks it and may still get one."""
    if finalizer in obj.metadata.finalizers or obj.is_terminating:
        return []
    return [_finalizers(plane, kind, obj, [*obj.metadata.finalizers, finalizer], "add finalizer")]


def drop_finalizer(
    plane: PlaneName,
    kind: KindInfo[Any],
    obj: ApiObject,
    finalizer: str,
    *,
    unfinished: Sequence[str] = (),
) -> list[Action]:
    """The patch that releases an object; while anything it stands for is left, a wait for that."""
    if finalizer not in obj.metadata.finalizers:
        return []
    if unfinished:
        return [Wait(f"{kind.kind} {ref_of(obj)} is kept for: {', '.join(unfinished)}")]
    kept = [f for f in obj.metadata.finalizers if f != finalizer]
    return [_finalizers(plane, kind, obj, kept, "release finalizer")]


def _finalizers(
    plane: PlaneName, kind: KindInfo[Any], obj: ApiObject, finalizers: Sequence[str], reason: str
) -> Patch:
    metadata = {
        "resourceVersion": obj.metadata.resource_version,
        "finalizers": list(finalizers),
    }
    return Patch(plane, kind, ref_of(obj), {"metadata": metadata}, reason)
