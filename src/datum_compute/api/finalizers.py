"""Whose finalizers hold an object: the platform's go by themselves, others are somebody's move."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.meta.objects import ApiObject

# Every one that a controller of the platform releases, or the server itself.
PLATFORM_FINALIZERS = frozenset(
    value for name, value in vars(labels).items() if name.endswith("_FINALIZER")
)


def foreign_finalizers(obj: ApiObject) -> list[str]:
    """Those that only whoever added them releases."""
    return [name for name in obj.metadata.finalizers if name not in PLATFORM_FINALIZERS]


def held_by_others(obj: ApiObject) -> bool:
    """Whether it is terminating and the platform has done all that it has to do for that."""
    finalizers = obj.metadata.finalizers
    return (
        bool(finalizers) and obj.is_terminating and len(foreign_finalizers(obj)) == len(finalizers)
    )
