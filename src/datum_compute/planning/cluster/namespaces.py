"""Conditions of a terminating namespace: the objects that remain in it, as Kubernetes reports them.

Equal contents give equal conditions, independently of their order, so that the status is written
only after a change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from datum_compute.api.conditions import FALSE, TRUE
from datum_compute.api.core import NamespaceCondition
from datum_compute.api.inventory import StoredObject

CONTENT, FINALIZERS = "NamespaceContentRemaining", "NamespaceFinalizersRemaining"


def namespace_conditions(
    before: Sequence[NamespaceCondition], remaining: Sequence[StoredObject], now: str
) -> list[NamespaceCondition]:
    kinds = Counter(held.kind.resource for held in remaining)
    finalizers = Counter(name for held in remaining for name in held.finalizers)
    content = _condition(
        CONTENT,
        ("SomeResourcesRemain", "ContentRemoved"),
        ("Some resources are remaining: ", "All content successfully removed"),
        [f"{kind} has {count} resource instances" for kind, count in sorted(kinds.items())],
    )
    held_by = _condition(
        FINALIZERS,
        ("SomeFinalizersRemain", "ContentHasNoFinalizers"),
        (
            "Some content in the namespace has finalizers remaining: ",
            "All content-preserving finalizers finished",
        ),
        [f"{name} in {count} resource instances" for name, count in sorted(finalizers.items())],
    )
    return [_since(before, condition, now) for condition in (content, held_by)]


def _condition(
    type_: str, reasons: tuple[str, str], messages: tuple[str, str], found: list[str]
) -> NamespaceCondition:
    """Use the first reason and message if ``found`` is not empty, the second otherwise."""
    if not found:
        return NamespaceCondition(type=type_, status=FALSE, reason=reasons[1], message=messages[1])
    message = messages[0] + ", ".join(found)
    return NamespaceCondition(type=type_, status=TRUE, reason=reasons[0], message=message)


def _since(
    before: Sequence[NamespaceCondition], condition: NamespaceCondition, now: str
) -> NamespaceCondition:
    old = next((c for c in before if c.type == condition.type), None)
    kept = old is not None and old.status == condition.status
    since = old.last_transition_time if old is not None and kept else now
    return NamespaceCondition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=condition.message,
        last_transition_time=since,
    )
