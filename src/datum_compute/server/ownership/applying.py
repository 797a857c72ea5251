"""One apply, worked out: the configuration merged in, what was given up taken out, owners kept.

Fields that others own and that would change are conflicts, unless the caller forces it; fields
that the caller owned before and no longer names go when nobody else owns them.
"""

from __future__ import annotations

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.compare import (
    Comparison,
    applied_fields,
    compared,
    with_named_parents,
)
from datum_compute.server.apply.field_set import EMPTY, MEMBER, FieldSet, difference, union
from datum_compute.server.apply.field_shape import FieldMap
from datum_compute.server.apply.managed_fields import (
    BEFORE_FIRST_APPLY,
    UPDATE,
    Entries,
    Manager,
    after_apply,
    conflicting,
    entries_of,
    owned_by,
    owned_by_others,
    with_entries,
)
from datum_compute.server.apply.merge import merged, without
from datum_compute.server.ownership.conflicts import conflict_error
from datum_compute.server.ownership.lastapplied import allowed_by_last_apply, with_last_applied

_NEVER_REMOVED: FieldSet = {"f:metadata": MEMBER}


class Application(msgspec.Struct, frozen=True):
    """A configuration, and who applies it to which part of an object."""

    config: JsonObject
    manager: Manager
    force: bool
    shape: FieldMap

    @property
    def claimed(self) -> FieldSet:
        return applied_fields(self.config, self.shape)

    def onto(self, live: JsonObject, time: str) -> JsonObject:
        """The live object with the configuration and its new owners; raises on conflicts."""
        entries = self._known_entries(live, time)
        claimed = self.claimed
        result = self._pruned(merged(live, self.config, self.shape), entries, claimed)
        found = compared(live, result, self.shape)
        self._check_conflicts(live, entries, found)
        result = with_last_applied(result, self.config, self.manager)
        return with_entries(result, after_apply(entries, self.manager, claimed, found, time))

    def owning(self, new: JsonObject, time: str) -> JsonObject:
        """A new object, as the first of its owners."""
        nothing = Comparison(EMPTY, EMPTY)
        return with_entries(new, after_apply([], self.manager, self.claimed, nothing, time))

    def _known_entries(self, live: JsonObject, time: str) -> Entries:
        """An object nobody is known to own belongs to whoever came before the first apply."""
        if entries := entries_of(live["metadata"]):
            return entries
        everything = compared({}, live, self.shape).changed
        before = Manager(BEFORE_FIRST_APPLY, UPDATE, self.manager.api_version)
        return [before.entry(everything, time)] if everything else []

    def _pruned(self, result: JsonObject, entries: Entries, claimed: FieldSet) -> JsonObject:
        """Without what this manager applied before and neither it nor another one owns now."""
        before = owned_by(entries, self.manager)
        if not difference(before, claimed):
            return result
        owned = union(_NEVER_REMOVED, claimed)
        owned = union(owned, owned_by_others(entries, self.manager))
        given_up = difference(
            with_named_parents(before, self.shape), with_named_parents(owned, self.shape)
        )
        kept: JsonObject = without(result, given_up, self.shape)
        return kept

    def _check_conflicts(self, live: JsonObject, entries: Entries, found: Comparison) -> None:
        if self.force:
            return
        allowed = allowed_by_last_apply(live, self.manager, self.shape)
        conflicts = conflicting(entries, self.manager, difference(found.changed, allowed))
        if conflicts:
            raise conflict_error(conflicts)
