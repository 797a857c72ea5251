"""``metadata.managedFields``: one entry for each manager, updated by every write.

A plain write takes ownership of the fields it changes from all other managers. An apply owns all
fields of its configuration, shares those that it does not change, and releases those that it no
longer sends. Both are functions from entries to entries. Unaffected entries keep their identity.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import Cause, Invalid
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.server.apply.compare import Comparison, compare_objects, restrict_to, sent_fields
from datum_compute.server.apply.field_set import (
    EMPTY,
    MEMBER,
    SELF,
    FieldSet,
    difference,
    intersection,
    union,
    union_all,
)
from datum_compute.server.apply.field_shape import FieldMap, canonical_text
from datum_compute.server.routing import ApiRequest

APPLY, UPDATE = "Apply", "Update"
FIELDS_TYPE = "FieldsV1"
ANCIENT = "ancient-changes"
BEFORE_FIRST_APPLY = "before-first-apply"
NAME_LENGTH_MAX = 128
UPDATERS_MAX = 10

Entry = JsonObject
Entries = list[Entry]


class FieldManager(msgspec.Struct, frozen=True):
    """The name, operation, version and endpoint of a writer, which identify its entry."""

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

    def owns_entry(self, entry: Entry) -> bool:
        """Return True if the entry belongs to this manager.

        An Apply entry matches at any apiVersion, an Update entry only at its own.
        """
        return (
            entry.get("manager", "") == self.name
            and entry["operation"] == self.operation
            and entry.get("subresource", "") == self.subresource
            and (self.operation == APPLY or entry["apiVersion"] == self.api_version)
        )


def name_of_agent(headers: Mapping[str, str]) -> str:
    """Return the manager of a plain write without the parameter fieldManager."""
    agent = headers.get("user-agent", "").partition("/")[0][:NAME_LENGTH_MAX]
    if not agent.isprintable():
        agent = "".join(character for character in agent if character.isprintable())
    return agent or "unknown"


def entries_after_update(
    entries: Entries, manager: FieldManager, found: Comparison, taken: FieldSet, time: str
) -> Entries:
    """Return the entries after a plain write.

    ``taken`` are the changed fields that the request contained.
    """
    rest = drop_fields(entries, found)
    if not taken:
        return rest
    own, others = EMPTY, []
    for entry in rest:
        if manager.owns_entry(entry):
            own = own or entry["fieldsV1"]
        else:
            others.append(entry)
    return _merge_oldest_updates(_sort_entries([*others, manager.entry(union(own, taken), time)]))


def entries_after_apply(
    entries: Entries, manager: FieldManager, claimed: FieldSet, found: Comparison, time: str
) -> Entries:
    """Return the entries after an apply that changed the fields in ``found``."""
    before = next((entry for entry in entries if manager.owns_entry(entry)), None)
    if (
        before is not None
        and not (found.changed or found.removed)
        and before["fieldsV1"] == claimed
        and before["apiVersion"] == manager.api_version
    ):
        return entries
    others = drop_fields([entry for entry in entries if entry is not before], found)
    return _sort_entries([*others, manager.entry(claimed, time)]) if claimed else others


def find_conflicts(
    entries: Entries, manager: FieldManager, changed: FieldSet
) -> list[tuple[Entry, FieldSet]]:
    """Return the entries of other managers that own changed fields, with those fields."""
    found = [
        (entry, intersection(entry["fieldsV1"], changed))
        for entry in entries
        if not manager.owns_entry(entry)
    ]
    return [(entry, fields) for entry, fields in found if fields]


def fields_owned_by(entries: Entries, manager: FieldManager) -> FieldSet:
    return next((entry["fieldsV1"] for entry in entries if manager.owns_entry(entry)), EMPTY)


def fields_owned_by_others(entries: Entries, manager: FieldManager) -> FieldSet:
    return union_all(entry["fieldsV1"] for entry in entries if not manager.owns_entry(entry))


def entries_in(metadata: JsonObject) -> Entries:
    found: Entries = metadata.get("managedFields", [])
    return found


def with_entries(obj: JsonObject, entries: Iterable[Entry]) -> JsonObject:
    """The object with these entries as the last part of its metadata."""
    metadata: dict[str, Any] = dict(obj["metadata"])
    metadata.pop("managedFields", None)
    if listed := list(entries):
        metadata["managedFields"] = listed
    return {**obj, "metadata": metadata}


def drop_fields(entries: Entries, found: Comparison) -> Entries:
    gone = union(found.changed, found.removed)
    result = []
    for entry in entries:
        fields = entry["fieldsV1"]
        kept = difference(fields, gone)
        if kept:
            result.append(entry if kept is fields else {**entry, "fieldsV1": kept})
    return result


def _sort_entries(entries: Entries) -> Entries:
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


def _merge_oldest_updates(entries: Entries) -> Entries:
    """Merge the oldest Update entries above UPDATERS_MAX, so that the list is bounded."""
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
        FieldManager(ANCIENT, UPDATE, version).entry(
            union_all(entry["fieldsV1"] for entry in same), same[-1].get("time", "")
        )
        for version, same in by_version.items()
    ]
    dropped = set(map(id, oldest))
    return _sort_entries([*(entry for entry in entries if id(entry) not in dropped), *together])


# --- The managedFields that a caller sends
# An empty list, or one empty entry, removes all owners. Otherwise each entry must be valid.


ENTRIES_MAX = 1000
_BRACKETS_MAX = 32
_TEXTS = ("manager", "operation", "apiVersion", "time", "fieldsType", "subresource")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)", re.ASCII)
_FIELD = "metadata.managedFields"


def is_reset(sent: Any) -> bool:
    return sent in ([], [{}])


def claim_problems(sent: Any) -> Iterator[Cause]:
    """Yield all problems of the entries of a caller."""
    if not isinstance(sent, list) or len(sent) > ENTRIES_MAX:
        yield Cause.invalid(_FIELD, f"must be a list of at most {ENTRIES_MAX} entries")
        return
    for index, entry in enumerate(sent):
        yield from _entry_problems(entry, f"{_FIELD}[{index}]")


def read_claims(sent: Entries) -> Entries:
    """Return valid entries, with their path steps in canonical form."""
    return [
        {
            **{field: entry[field] for field in _TEXTS if entry.get(field)},
            "fieldsV1": _canonical(entry["fieldsV1"]),
        }
        for entry in sent
        if entry.get("fieldsV1")
    ]


def _entry_problems(entry: Any, path: str) -> Iterator[Cause]:
    if not isinstance(entry, dict):
        yield Cause.invalid(path, "must be an object")
        return
    for field in _TEXTS:
        if not isinstance(entry.get(field) or "", str):
            yield Cause.invalid(f"{path}.{field}", "must be a string")
            return
    if entry.get("operation") not in (APPLY, UPDATE):
        yield Cause.invalid(f"{path}.operation", f"must be `{APPLY}` or `{UPDATE}`")
    if entry.get("fieldsType") != FIELDS_TYPE:
        yield Cause.invalid(f"{path}.fieldsType", f"must be `{FIELDS_TYPE}`")
    if not entry.get("apiVersion"):
        yield Cause.invalid(f"{path}.apiVersion", "must not be empty")
    if len(entry.get("manager") or "") > NAME_LENGTH_MAX:
        yield Cause.invalid(f"{path}.manager", f"must be at most {NAME_LENGTH_MAX} characters")
    if entry.get("time") and not _is_time(entry["time"]):
        yield Cause.invalid(f"{path}.time", "must be a time such as 2024-01-31T12:00:00Z")
    fields = entry.get("fieldsV1", {})
    if not isinstance(fields, dict) or not _is_set(fields) or SELF in fields:
        yield Cause.invalid(
            f"{path}.fieldsV1", "must be a set of fields: keys f:, k:, v:, i: and ."
        )


def _is_set(fields: JsonObject) -> bool:
    return all(
        isinstance(node, dict) and (_is_step(step) if step != SELF else not node) and _is_set(node)
        for step, node in fields.items()
    )


def _is_step(step: str) -> bool:
    prefix, text = step[:2], step[2:]
    if prefix == "f:":
        return True
    if prefix == "i:":
        return text.isdecimal()
    if text.count("[") + text.count("{") > _BRACKETS_MAX:
        return False
    try:
        value = decode(text.encode())
    except (DecodeError, UnicodeEncodeError):
        return False
    return prefix == "v:" or (prefix == "k:" and isinstance(value, dict) and bool(value))


def _is_time(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return _TIME.fullmatch(text) is not None


def _canonical(fields: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for step, node in fields.items():
        canonical_step = step
        if step[:2] in ("k:", "v:"):
            canonical_step = step[:2] + canonical_text(decode(step[2:].encode()))
        result[canonical_step] = _canonical(node) if node else MEMBER
    return result


# --- Ownership of a plain write: the managedFields of the object that the request stores
# A plain write owns the fields that it sent and changed. Defaults and fields set by the server have
# no owner. An object without managedFields gets none until the next apply.


def parse_field_manager(query: Mapping[str, str]) -> str:
    """Return the fieldManager parameter, or an empty string."""
    name = query.get("fieldManager", "")
    if len(name) > NAME_LENGTH_MAX:
        why = f"Too long: may not be more than {NAME_LENGTH_MAX} bytes"
        raise invalid_option("fieldManager", "FieldValueTooLong", why)
    if not name.isprintable():
        why = "Invalid value: should only contain printable characters"
        raise invalid_option("fieldManager", "FieldValueInvalid", why)
    return name


def invalid_option(field: str, reason: str, why: str) -> Invalid:
    message = f'PatchOptions.meta.k8s.io "" is invalid: {field}: {why}'
    cause = Cause(field, reason, why)
    return Invalid(message, group="meta.k8s.io", kind="PatchOptions", causes=[cause])


def updater(request: ApiRequest, subresource: str | None = None) -> FieldManager:
    """Return the manager of a plain write through the subresource, by default the request's."""
    name = parse_field_manager(request.query) or name_of_agent(request.http.headers)
    endpoint = request.route.subresource if subresource is None else subresource
    return FieldManager(name, UPDATE, request.kind.api_version, endpoint)


def set_owners_at_creation(
    request: ApiRequest, sent: JsonObject, status: Any, new: JsonObject
) -> JsonObject:
    """Return the new object with its owners.

    ``status`` is the status that was sent and stored. Its fields are owned as if a separate request
    had written it.
    """
    shape, time = request.resource.shape(), new["metadata"]["creationTimestamp"]
    taken = sent_fields({**sent, "metadata": new["metadata"]}, shape.main)
    entries = [updater(request).entry(taken, time)] if taken else []
    if status:
        part = shape.of("status")
        written = restrict_to(sent_fields({"status": status}, part), new, part)
        entries += [updater(request, "status").entry(written, time)] if written else []
    if not entries:
        return new
    return {**new, "metadata": {**new["metadata"], "managedFields": entries}}


def set_owners_after_update(
    request: ApiRequest, old: JsonObject, sent: JsonObject, new: JsonObject, now: float
) -> JsonObject:
    """Return the new object with its owners. Its managedFields must be those of the old object."""
    entries = _starting_entries(request, old, sent)
    if not entries:
        return with_entries(new, ())
    shape = request.resource.shape().of(request.route.subresource)
    found = compare_objects(old, new, shape)
    if found.changed or found.removed:
        taken = _fields_changed_by_request(found.changed, sent, new, shape)
        entries = entries_after_update(entries, updater(request), found, taken, timestamp(now))
    if entries is entries_in(new["metadata"]):
        return new
    return with_entries(new, entries)


def _fields_changed_by_request(
    changed: FieldSet, sent: JsonObject, new: JsonObject, shape: FieldMap
) -> FieldSet:
    """Return the changed fields that the request contained.

    A top-level field that is stored as it was sent needs no comparison.
    """
    altered = {
        step: node for step, node in changed.items() if sent.get(step[2:]) != new.get(step[2:])
    }
    if not altered:
        return changed
    rest = {step: node for step, node in changed.items() if step not in altered}
    return {**rest, **restrict_to(altered, sent, shape)}


def _starting_entries(request: ApiRequest, old: JsonObject, sent: JsonObject) -> Entries:
    """Return the entries of the object, or those of the request if it sends managedFields.

    A request to a subresource cannot replace them.
    """
    entries = entries_in(old["metadata"])
    claimed = sent["metadata"].get("managedFields")
    if claimed is None or request.route.subresource or claimed == entries:
        return entries
    if is_reset(claimed):
        return []
    if found := list(claim_problems(claimed)):
        raise invalid(request.kind, request.route.name, found)
    return read_claims(claimed)
