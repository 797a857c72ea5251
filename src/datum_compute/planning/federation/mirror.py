"""Copies of objects on other planes.

- A copy has the labels and annotations that its source carries over, and the marks that identify
  the source. A mark overrides a carried value of the same key.
- It has none of the metadata that the plane of the source sets: uid, versions, finalizers, owners.
- A copy that is being deleted, or that belongs to an earlier owner, is not changed. The next copy
  is created when it is gone.
- Labels and annotations of other writers stay. The spec or the data is overwritten.
- Metadata and spec are written before the status. The status follows in the next pass.
- A copy without a source is deleted by uid, so that a later object of the same name stays. The
  caller has to prove that the source is gone, if necessary with a live read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from datum_compute.api.meta.objects import (
    ApiObject,
    KindInfo,
    ObjectMeta,
    OwnerReference,
    controller_uid,
    ref_of,
)
from datum_compute.api.planes import PlaneName
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.plan import Action, Create, Delete, Wait

T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class Marks:
    """Labels and annotations for a copy."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def desired_copy(
    source: T,
    namespace: str,
    *,
    carry: Marks,
    mark: Marks,
    owner: OwnerReference | None = None,
) -> T:
    """Return the copy of ``source`` in ``namespace``.

    ``carry`` was selected from the source, ``mark`` identifies the source. The copy of an immutable
    ConfigMap or Secret is mutable, because a source may be recreated with other data.
    """
    metadata = ObjectMeta(
        name=source.metadata.name,
        namespace=namespace,
        labels={**carry.labels, **mark.labels},
        annotations={**carry.annotations, **mark.annotations},
        owner_references=[owner] if owner is not None else [],
    )
    mutable = {"immutable": None} if hasattr(source, "immutable") else {}
    return msgspec.structs.replace(source, metadata=metadata, **mutable)


def plan_mirror(
    plane: PlaneName,
    kind: KindInfo[T],
    desired: T,
    observed: T | None,
    reason: str,
    *,
    with_status: bool = False,
    recreate: str = "",
) -> list[Action]:
    """Plan the write that makes the observed copy equal to the desired one.

    ``with_status`` is for kinds whose copies have the status of their source. ``recreate`` states
    why the observed copy cannot be patched, if that is so.
    """
    if observed is None:
        created = desired if with_status else _without_status(desired)
        return [Create(plane, kind, created, reason, with_status=with_status)]
    if observed.is_terminating:
        return [Wait(f"an earlier {kind.kind} {ref_of(observed)} is being removed from {plane}")]
    owner = controller_uid(desired)
    if owner and controller_uid(observed) not in ("", owner):
        return [Wait(f"{kind.kind} {ref_of(observed)} on {plane} belongs to an earlier owner")]
    if recreate:
        return [Delete(plane, kind, ref_of(observed), observed.metadata.uid, recreate)]
    actions = plan_object(plane, kind, desired, observed, reason)
    if with_status and not actions:
        status: Any = getattr(desired, "status")  # noqa: B009 - not every kind has one
        actions = plan_status(plane, kind, observed, status, reason)
    return actions


def _without_status(copy: T) -> T:
    status = getattr(copy, "status", None)
    return copy if status is None else msgspec.structs.replace(copy, status=type(status)())


def plan_copy_deletion(
    plane: PlaneName,
    kind: KindInfo[T],
    observed: T | None,
    reason: str,
    *,
    unchanged: bool = False,
) -> list[Action]:
    """Plan the deletion of a copy without a source.

    With ``unchanged`` the delete fails if the copy has changed since it was observed.
    """
    if observed is None or observed.is_terminating:
        return []
    version = observed.metadata.resource_version if unchanged else ""
    return [Delete(plane, kind, ref_of(observed), observed.metadata.uid, reason, version)]


def is_waiting(actions: Sequence[Action]) -> bool:
    return any(isinstance(action, Wait) for action in actions)
