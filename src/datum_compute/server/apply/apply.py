"""Server-side apply: a PATCH whose caller owns every field of the configuration it sends.

The object is created if it does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec
import orjson

from datum_compute.api.errors import AlreadyExists, BadRequest, Cause, Conflict, NotFound, shorten
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.server.apply.compare import (
    Comparison,
    applied_fields,
    compare_objects,
    with_named_parents,
)
from datum_compute.server.apply.field_set import (
    EMPTY,
    MEMBER,
    FieldSet,
    Path,
    difference,
    paths,
    union,
)
from datum_compute.server.apply.field_shape import FieldMap
from datum_compute.server.apply.managed_fields import (
    APPLY,
    BEFORE_FIRST_APPLY,
    UPDATE,
    Entries,
    Entry,
    FieldManager,
    entries_after_apply,
    entries_in,
    fields_owned_by,
    fields_owned_by_others,
    find_conflicts,
    invalid_option,
    parse_field_manager,
    with_entries,
)
from datum_compute.server.apply.merge import merge_values, remove_fields
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.body import (
    as_object,
    decode_json,
    decode_json_or_yaml,
    json_type,
)
from datum_compute.server.encoding.request_options import (
    parse_dry_run,
    parse_field_validation,
    parse_flag,
)
from datum_compute.server.encoding.responses import conflict
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs import scale
from datum_compute.server.verbs.create import CreateRequest, check_may_create, create_object
from datum_compute.server.verbs.metadata import read_metadata
from datum_compute.server.verbs.prepare import check_type_meta
from datum_compute.server.verbs.update import UpdateRequest, change_object

# --- The error of an apply that would change fields of other managers, worded as in Kubernetes


REASON = "FieldManagerConflict"
CAUSES_MAX = 100


def conflict_error(found: Sequence[tuple[Entry, FieldSet]]) -> Conflict:
    """Return an error with a cause for each field and manager, up to CAUSES_MAX.

    The message contains the total number.
    """
    count = 0
    listed: list[tuple[str, str]] = []
    for entry, fields in sorted(found, key=lambda item: _format_manager(item[0])):
        members = list(paths(fields))
        count += len(members)
        if room := CAUSES_MAX - len(listed):
            manager = _format_manager(entry)
            listed += [(manager, format_path(path)) for path in nsmallest(room, members)]
    listed.sort()
    causes = [Cause(path, REASON, f"conflict with {manager}") for manager, path in listed]
    return Conflict(_message(listed, count), causes=causes)


def _message(listed: Sequence[tuple[str, str]], count: int) -> str:
    if count == 1:
        manager, path = listed[0]
        return f"Apply failed with 1 conflict: conflict with {manager}: {path}"
    lines: list[str] = []
    for manager, group in groupby(listed, key=itemgetter(0)):
        lines.append(f"conflicts with {manager}:")
        lines += [f"- {path}" for _, path in group]
    if count > len(listed):
        lines.append(f"and {count - len(listed)} more")
    return f"Apply failed with {count} conflicts: " + "\n".join(lines)


def _format_manager(entry: Entry) -> str:
    shown = f'"{entry.get("manager", "")}"'
    if subresource := entry.get("subresource"):
        shown += f' with subresource "{subresource}"'
    return f"{shown} using {entry['apiVersion']}" if entry["operation"] == UPDATE else shown


def format_path(path: Path) -> str:
    """``.spec.containers[name="app"].image``"""
    return "".join(_format_step(step) for step in path)


def _format_step(step: str) -> str:
    prefix, text = step[:2], step[2:]
    if prefix == "f:":
        return f".{text}"
    if prefix == "k:":
        keys = orjson.loads(text)
        listed = ",".join(f"{name}={orjson.dumps(keys[name]).decode()}" for name in sorted(keys))
        return f"[{listed}]"
    return f"[={text}]" if prefix == "v:" else f"[{text}]"


# --- The last-applied annotation of kubectl's client-side apply
# When a user moves to server-side apply (manager ``kubectl``), fields whose value equals that in
# the annotation belong to the user already, so changing them is not a conflict. The server updates
# the annotation, so that the user can move back.


ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"


def fields_of_last_apply(live: JsonObject, manager: FieldManager, shape: FieldMap) -> FieldSet:
    """Return the fields that kubectl may change although another manager owns them."""
    before = _last_applied(live) if manager.name == KUBECTL else None
    if before is None or before.get("apiVersion") != manager.api_version:
        return EMPTY
    found = compare_objects(before, live, shape)
    return difference(difference(applied_fields(before, shape), found.changed), found.removed)


def with_last_applied(obj: JsonObject, config: JsonObject, manager: FieldManager) -> JsonObject:
    annotations = obj["metadata"].get("annotations")
    if (
        manager.name != KUBECTL
        or manager.subresource
        or not (isinstance(annotations, dict) and annotations.get(ANNOTATION))
    ):
        return obj
    metadata = config.get("metadata", {})
    own = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != ANNOTATION}
    shown = {**config, "metadata": {**metadata, "annotations": own}}
    text = encode(shown).decode() + "\n"
    changed = {**obj["metadata"], "annotations": {**annotations, ANNOTATION: text}}
    return {**obj, "metadata": changed}


def _last_applied(live: JsonObject) -> JsonObject | None:
    text: Any = (live["metadata"].get("annotations") or {}).get(ANNOTATION)
    if not isinstance(text, str):
        return None
    try:
        found = decode_json(text.encode())
    except BadRequest:
        return None
    is_object = isinstance(found, dict) and isinstance(found.get("metadata", {}), dict)
    return found if is_object else None


# --- The result of an apply: the merged object and its new owners
# Changing a field of another manager is a conflict, unless the caller forces it. A field that the
# caller owned and no longer sends is removed, unless another manager owns it.


_NEVER_REMOVED: FieldSet = {"f:metadata": MEMBER}


class ApplyConfiguration(msgspec.Struct, frozen=True):
    """A configuration, its manager, and the shape of the endpoint to which it is applied."""

    config: JsonObject
    manager: FieldManager
    force: bool
    shape: FieldMap

    @property
    def sent_fields(self) -> FieldSet:
        return applied_fields(self.config, self.shape)

    def apply_to(self, live: JsonObject, time: str) -> JsonObject:
        """Merge the configuration into the live object and update its owners.

        Raise Conflict if another manager owns a field that would change.
        """
        entries = self._entries_or_default(live, time)
        claimed = self.sent_fields
        result = self._remove_released(
            merge_values(live, self.config, self.shape), entries, claimed
        )
        found = compare_objects(live, result, self.shape)
        self._check_conflicts(live, entries, found)
        result = with_last_applied(result, self.config, self.manager)
        return with_entries(
            result, entries_after_apply(entries, self.manager, claimed, found, time)
        )

    def set_sole_manager(self, new: JsonObject, time: str) -> JsonObject:
        """Return a new object with this manager as its only owner."""
        unchanged = Comparison(EMPTY, EMPTY)
        return with_entries(
            new, entries_after_apply([], self.manager, self.sent_fields, unchanged, time)
        )

    def _entries_or_default(self, live: JsonObject, time: str) -> Entries:
        """Return the entries of the object. Without any, before-first-apply owns all fields."""
        if entries := entries_in(live["metadata"]):
            return entries
        everything = compare_objects({}, live, self.shape).changed
        before = FieldManager(BEFORE_FIRST_APPLY, UPDATE, self.manager.api_version)
        return [before.entry(everything, time)] if everything else []

    def _remove_released(
        self, result: JsonObject, entries: Entries, claimed: FieldSet
    ) -> JsonObject:
        """Remove the fields that this manager owned before and that no manager owns now."""
        before = fields_owned_by(entries, self.manager)
        if not difference(before, claimed):
            return result
        owned = union(_NEVER_REMOVED, claimed)
        owned = union(owned, fields_owned_by_others(entries, self.manager))
        released = difference(
            with_named_parents(before, self.shape), with_named_parents(owned, self.shape)
        )
        kept: JsonObject = remove_fields(result, released, self.shape)
        return kept

    def _check_conflicts(self, live: JsonObject, entries: Entries, found: Comparison) -> None:
        if self.force:
            return
        allowed = fields_of_last_apply(live, self.manager, self.shape)
        conflicts = find_conflicts(entries, self.manager, difference(found.changed, allowed))
        if conflicts:
            raise conflict_error(conflicts)


# --- apply


_ATTEMPTS = 8


async def apply(context: ServerContext, request: ApiRequest) -> Response:
    configuration = _parse_apply(request)
    change = UpdateRequest(
        build=lambda live: configuration.apply_to(live, timestamp(context.clock())),
        validation=parse_field_validation(request.query, request.http.body),
        needs_version=False,
        set_managers=lambda old, sent, new: with_entries(new, entries_in(sent["metadata"])),
    )
    for _ in range(_ATTEMPTS):
        try:
            return await change_object(context, request, change)
        except NotFound as error:
            if request.route.subresource or error.kind != request.kind.plural:
                raise
        try:
            return await _create_applied(context, request, configuration, change)
        except AlreadyExists:
            continue
    raise conflict(request.kind, request.route.name)


async def _create_applied(
    context: ServerContext,
    request: ApiRequest,
    configuration: ApplyConfiguration,
    change: UpdateRequest,
) -> Response:
    check_may_create(context, request)
    incoming = read_metadata(configuration.config)
    if incoming.uid or incoming.version:
        why = "the configuration names a uid or a resourceVersion, but there is no such object"
        raise conflict(request.kind, request.route.name, why)
    creation = CreateRequest(
        obj=configuration.config,
        metadata=incoming,
        validation=change.validation,
        dry_run=parse_dry_run(request.query),
        set_managers=lambda new: configuration.set_sole_manager(new, timestamp(context.clock())),
    )
    return await create_object(context, request, creation)


def _parse_apply(request: ApiRequest) -> ApplyConfiguration:
    name = parse_field_manager(request.query)
    if not name:
        why = "Required value: is required for apply patch"
        raise invalid_option("fieldManager", "FieldValueRequired", why)
    manager = FieldManager(name, APPLY, request.kind.api_version, request.route.subresource)
    force = parse_flag(request.query, "force")
    shape = request.resource.shape().of(request.route.subresource)
    return ApplyConfiguration(_parse_config(request), manager, force, shape)


def _parse_config(request: ApiRequest) -> JsonObject:
    """Decode the configuration. Raise BadRequest if it does not match the object of the path."""
    sent = as_object(decode_json_or_yaml(request.http.body))
    for field in ("apiVersion", "kind"):
        if not sent.get(field):
            raise BadRequest(f"Object '{field}' is missing from the applied configuration")
    scaled = scale.is_scale(request)
    obj = scale.check_scale(sent) if scaled else check_type_meta(request.kind, sent)
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadRequest(f"metadata must be an object, not {json_type(metadata)}")
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    wanted = {"name": request.route.name, "namespace": request.route.namespace}
    for field, expected in wanted.items():
        found = metadata.get(field) or expected
        if found != expected:
            raise BadRequest(
                f"the {field} of the object ({shorten(str(found))}) does not match "
                f"the {field} on the URL ({expected})"
            )
    named = {field: value for field, value in wanted.items() if value}
    config = {**obj, "metadata": {**metadata, **named}}
    return scale.object_config(request, config) if scaled else config
