"""Field owners of a write: from a request to the managedFields of the object it stores.

Plain writes own what they sent and changed; defaults and what the server sets have no owner. An
object that has lost its managedFields stays without until somebody applies it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.api.errors import Cause, Invalid
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.server import problems
from datum_compute.server.apply.compare import compared, present, sent_fields
from datum_compute.server.apply.field_set import FieldSet
from datum_compute.server.apply.field_shape import FieldMap
from datum_compute.server.apply.managed_fields import (
    NAME_LENGTH_MAX,
    UPDATE,
    Entries,
    Manager,
    after_update,
    entries_of,
    manager_name,
    with_entries,
)
from datum_compute.server.call import Call
from datum_compute.server.ownership.claims import claim_problems, is_reset, read_claims


def field_manager(query: Mapping[str, str]) -> str:
    """The fieldManager parameter, or the empty string."""
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


def updater(call: Call, subresource: str | None = None) -> Manager:
    """The manager of a plain write, through the endpoint of the request or another one."""
    agent = call.request.headers.get("user-agent", "")
    name = manager_name(field_manager(call.query), agent)
    endpoint = call.route.subresource if subresource is None else subresource
    return Manager(name, UPDATE, call.kind.api_version, endpoint)


def owned_at_creation(
    call: Call, sent: JsonObject, new: JsonObject, status: Any, now: float
) -> JsonObject:
    """``status`` is what was sent of it and kept: owned as if it had been written afterwards."""
    shape, time = call.served.shape, timestamp(now)
    taken = sent_fields({**sent, "metadata": new["metadata"]}, shape.main)
    entries = [updater(call).entry(taken, time)] if taken else []
    if status:
        part = shape.of("status")
        said = present(sent_fields({"status": status}, part), new, part)
        entries += [updater(call, "status").entry(said, time)] if said else []
    return with_entries(new, entries)


def owned_after_update(
    call: Call, old: JsonObject, sent: JsonObject, new: JsonObject, now: float
) -> JsonObject:
    """The new object with its owners; it must carry the old owners when it comes."""
    entries = _starting_entries(call, old, sent)
    if not entries:
        return with_entries(new, ())
    shape = call.served.shape.of(call.route.subresource)
    found = compared(old, new, shape)
    if found.changed or found.removed:
        taken = _asked_for(found.changed, sent, new, shape)
        entries = after_update(entries, updater(call), found, taken, timestamp(now))
    if entries is entries_of(new["metadata"]):
        return new
    return with_entries(new, entries)


def _asked_for(changed: FieldSet, sent: JsonObject, new: JsonObject, shape: FieldMap) -> FieldSet:
    """What changed and stands in what was sent. Parts that are stored as they were sent need no
    second look."""
    altered = {
        step: node for step, node in changed.items() if sent.get(step[2:]) != new.get(step[2:])
    }
    if not altered:
        return changed
    rest = {step: node for step, node in changed.items() if step not in altered}
    return {**rest, **present(altered, sent, shape)}


def _starting_entries(call: Call, old: JsonObject, sent: JsonObject) -> Entries:
    """Those of the object, unless the caller rewrites them; a subresource cannot."""
    entries = entries_of(old["metadata"])
    claimed = sent["metadata"].get("managedFields")
    if claimed is None or call.route.subresource or claimed == entries:
        return entries
    if is_reset(claimed):
        return []
    if found := list(claim_problems(claimed)):
        raise problems.invalid(call.kind, call.route.name, found)
    return read_claims(claimed)
