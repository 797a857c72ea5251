"""``metadata.managedFields``: one entry for each manager, kept true by every write.

A plain write takes the fields it changes from everybody else. An apply claims all the fields of
its configuration, shares those it leaves as they are, and gives up what it no longer names. Both
are functions from entries to entries; entries that a write does not touch stay the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.compare import Comparison
from datum_compute.server.apply.field_set import (
    EMPTY,
    FieldSet,
    difference,
    intersection,
    union,
    union_all,
)

APPLY, UPDATE = "Apply", "Update"
FIELDS_TYPE = "FieldsV1"
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
NAME_LENGTH_MAX = 128
UPDATERS_MAX = 10

Entry = JsonObject
Entries = list[Entry]


class Manager(msgspec.Struct, frozen=True):
    """Who writes, how, and through which endpoint."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def entry(self, fields: FieldSet, time: str) -> Entry:
        entry: Entry = {
            "manager": self.name,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": time,
            "fieldsType": FIELDS_TYPE,
            "fieldsV1": fields,
        }
        return {**entry, "subresource": self.subresource} if self.subresource else entry

    def wrote(self, entry: Entry) -> bool:
        """Appliers stay themselves when they move to another version; updaters do not."""
        return (
            entry.get("manager", "") == self.name
            and entry["operation"] == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == APPLY or entry["apiVersion"] == self.api_version)
        )


def manager_name(field_manager: str, user_agent: str) -> str:
    """The name of a plain writer that may not have said it."""
    if field_manager:
        return field_manager
    agent = user_agent.partition("/")[0][:NAME_LENGTH_MAX]
    if not agent.isprintable():
        agent = "".join(character for character in agent if character.isprintable())
    return agent or "unknown"


def after_update(
    entries: Entries, manager: Manager, found: Comparison, taken: FieldSet, time: str
) -> Entries:
    """The entries after a plain write; ``taken`` is the part of what changed that it asked for."""
    rest = _given_up(entries, found)
    if not taken:
        return rest
    own, others = EMPTY, []
    for entry in rest:
        if manager.wrote(entry):
            own = own or entry["fieldsV1"]
        else:
            others.append(entry)
    return _capped(_sorted([*others, manager.entry(union(own, taken), time)]))


def after_apply(
    entries: Entries, manager: Manager, claimed: FieldSet, found: Comparison, time: str
) -> Entries:
    """The entries after an apply that changed the object by ``found``."""
    before = next((entry for entry in entries if manager.wrote(entry)), None)
    if before is not None and not found.changed and not found.removed:
        said = {"fieldsV1": claimed, "apiVersion": manager.api_version}
        if all(before[field] == value for field, value in said.items()):
            return entries
    others = _given_up([entry for entry in entries if entry is not before], found)
    return _sorted([*others, manager.entry(claimed, time)]) if claimed else others


def conflicting(
    entries: Entries, manager: Manager, changed: FieldSet
) -> list[tuple[Entry, FieldSet]]:
    """The other managers that own some of what an apply would change, and what they own of it."""
    found = [
        (entry, intersection(entry["fieldsV1"], changed))
        for entry in entries
        if not manager.wrote(entry)
    ]
    return [(entry, fields) for entry, fields in found if fields]


def owned_by(entries: Entries, manager: Manager) -> FieldSet:
    return next((entry["fieldsV1"] for entry in entries if manager.wrote(entry)), EMPTY)


def owned_by_others(entries: Entries, manager: Manager) -> FieldSet:
    return union_all(entry["fieldsV1"] for entry in entries if not manager.wrote(entry))


def entries_of(metadata: JsonObject) -> Entries:
    found: Entries = metadata.get("managedFields", [])
    return found


def with_entries(obj: JsonObject, entries: Iterable[Entry]) -> JsonObject:
    """The object with these entries as the last part of its metadata."""
    metadata: dict[str, Any] = dict(obj["metadata"])
    metadata.pop("managedFields", None)
    if listed := list(entries):
        metadata["managedFields"] = listed
    return {**obj, "metadata": metadata}


def _given_up(entries: Entries, found: Comparison) -> Entries:
    gone = union(found.changed, found.removed)
    result = []
    for entry in entries:
        fields = entry["fieldsV1"]
        kept = difference(fields, gone)
        if kept:
            result.append(entry if kept is fields else {**entry, "fieldsV1": kept})
    return result


def _sorted(entries: Entries) -> Entries:
    return sorted(
        entries,
        key=lambda entry: (
            entry["operation"],
            entry.get("time", ""),
            entry.get("manager", ""),
            entry["apiVersion"],
            entry.get("subresource", ""),
        ),
    )


def _capped(entries: Entries) -> Entries:
    """The oldest of too many updaters share one entry, so that an object cannot grow for ever."""
    if len(entries) <= UPDATERS_MAX:
        return entries
    updaters = [entry for entry in entries if entry["operation"] == UPDATE]
    surplus = len(updaters) - UPDATERS_MAX
    if surplus <= 0:
        return entries
    oldest = updaters[: surplus + 1]
    by_version: dict[str, Entries] = {}
    for entry in oldest:
        by_version.setdefault(entry["apiVersion"], []).append(entry)
    together = [
        Manager(ANCIENT, UPDATE, version).entry(
            union_all(entry["fieldsV1"] for entry in same), same[-1].get("time", "")
        )
        for version, same in by_version.items()
    ]
    dropped = set(map(id, oldest))
    return _sorted([*(entry for entry in entries if id(entry) not in dropped), *together])
