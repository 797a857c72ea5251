"""Predicates: standard filters for the edges of controllers.

An edge has an ``update_filter``, which compares two states of an object, and a ``create_filter``,
which checks a new object. Prefer these predicates to a function of your own:

- ``generation_changed``: the spec changed, for controllers that read neither status nor metadata.
- ``spec_or_metadata_changed``: the update is not only one of the status.
- ``value_changed(read)``: a value that is read from the object changed, such as one condition.
- ``new_state(matches)``: the new state matches, whatever changed.
- ``any_of(...)``: one of several update filters passes the update.
- ``never``: skip all updates, or all new objects.

A filter that depends on which controller wrote the change belongs to its controller, and states
how much it saves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datum_compute.api.meta.objects import ApiObject

UpdateFilter = Callable[[Any, Any], bool]
CreateFilter = Callable[[Any], bool]


def generation_changed(old: ApiObject, new: ApiObject) -> bool:
    """Return True if the spec changed."""
    return old.metadata.generation != new.metadata.generation


def spec_or_metadata_changed(old: ApiObject, new: ApiObject) -> bool:
    """Return True if a change is not only a change of the status."""
    before, after = old.metadata, new.metadata
    return (
        before.generation != after.generation
        or before.deletion_timestamp != after.deletion_timestamp
        or before.finalizers != after.finalizers
        or before.labels != after.labels
        or before.annotations != after.annotations
        or before.owner_references != after.owner_references
    )


def value_changed(read: Callable[[Any], object]) -> UpdateFilter:
    """Return a filter that passes updates between which ``read`` returns different values."""
    return lambda old, new: read(old) != read(new)


def new_state(matches: Callable[[Any], bool]) -> UpdateFilter:
    """Return a filter that passes updates whose new state matches."""
    return lambda _old, new: matches(new)


def any_of(*filters: UpdateFilter) -> UpdateFilter:
    return lambda old, new: any(passes(old, new) for passes in filters)


def never(*_states: Any) -> bool:
    """Skip the event."""
    return False
