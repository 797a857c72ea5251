"""Plans and their actions, as values that can be compared and printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import PlaneName


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object.

    With ``with_status`` its status is written too, if the plane supports that; otherwise a later
    reconcile writes it. A deferred action is planned but not applied now.
    """

    plane: PlaneName
    kind: KindInfo[Any]
    object: ApiObject
    reason: str
    deferred: bool = False
    with_status: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this uid; with a version, only if it has not changed since."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    uid: str
    reason: str
    version: str = ""
    deferred: bool = False


@dataclass(frozen=True, slots=True)
class Patch:
    """Apply a merge patch to an object.

    The metadata of the patch contains the uid if it must not apply to another object of the same
    name, and the version if it must not overwrite a concurrent change. ``unconfirmed_warning`` is
    the text of a warning event, for a release that an unreachable cell has not confirmed.
    """

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    patch: JsonObject
    reason: str
    unconfirmed_warning: str = ""


@dataclass(frozen=True, slots=True)
class ListItemRef:
    """An observed list item: its path, and the field that identifies it within the list."""

    path: str  # a JSON pointer, such as /spec/controller/schedulingGates/0
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveListItems:
    """Remove list items by key.

    The list is not rewritten, so that a writer with a stale copy gets a conflict instead of
    restoring items that others removed.
    """

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    uid: str
    items: tuple[ListItemRef, ...]
    reason: str
    # Fields of the spec to set in the same write, by name.
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Merge fields into the status; they were computed from the object at ``version``."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    version: str
    status: JsonObject
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for an event; ``reason`` states which."""

    reason: str
    deferred: bool = False


Action = Create | Delete | Patch | PatchStatus | RemoveListItems | Wait


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in order, and the delay after which the object is reconciled again without an event.

    ``requeue_after_s`` also limits the delay after a missed event.
    """

    actions: tuple[Action, ...] = ()
    requeue_after_s: float | None = None

    @property
    def is_settled(self) -> bool:
        return not self.actions


def is_deferred(action: Action) -> bool:
    """Return True if the action is planned but not applied now."""
    return isinstance(action, Create | Delete | Wait) and action.deferred


def add_finalizer(
    plane: PlaneName, kind: KindInfo[Any], obj: ApiObject, finalizer: str
) -> list[Action]:
    """Return the patch that adds the finalizer, unless the object has it or is terminating."""
    if finalizer in obj.metadata.finalizers or obj.is_terminating:
        return []
    return [_finalizers(plane, kind, obj, [*obj.metadata.finalizers, finalizer], "add finalizer")]


def drop_finalizer(
    plane: PlaneName,
    kind: KindInfo[Any],
    obj: ApiObject,
    finalizer: str,
    *,
    waiting_for: Sequence[str] = (),
) -> list[Action]:
    """Return the patch that removes the finalizer, or a wait while ``waiting_for`` is not empty."""
    if finalizer not in obj.metadata.finalizers:
        return []
    if waiting_for:
        return [Wait(f"{kind.kind} {ref_of(obj)} is waiting for: {', '.join(waiting_for)}")]
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
