"""Finalizers of an object that the platform does not remove itself."""

from __future__ import annotations

from datum_compute.api.labels import PLATFORM_FINALIZERS
from datum_compute.api.meta.objects import ApiObject


def foreign_finalizers(obj: ApiObject) -> list[str]:
    """Return the finalizers that only their owner removes."""
    return [name for name in obj.metadata.finalizers if name not in PLATFORM_FINALIZERS]


def is_held_by_foreign_finalizers(obj: ApiObject) -> bool:
    """Return True if a terminating object has finalizers, and none of them is of the platform."""
    finalizers = obj.metadata.finalizers
    return (
        bool(finalizers) and obj.is_terminating and len(foreign_finalizers(obj)) == len(finalizers)
    )
