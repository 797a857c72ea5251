"""Changes one object or one subresource of it: PUT, and the second half of every PATCH.

To add a subresource: write a function in ``prepare.py`` that changes only its part of the object,
and list it in ``_PREPARE``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from datum_compute.admission.rules.controller_owned import (
    RELEASE,
    finalizer_causes,
    keep_protected_finalizers,
    removed_finalizers,
    with_author,
)
from datum_compute.api.errors import BadRequest, Conflict, NotFound, shorten
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.apply.managed_fields import set_owners_after_update
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ServedResource
from datum_compute.server.encoding.body import decode_body, json_equal
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import (
    FieldValidation,
    parse_dry_run,
    parse_field_validation,
)
from datum_compute.server.encoding.responses import json_response
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs import commit, definitions, namespaces, scale
from datum_compute.server.verbs.create import build_create, check_may_create, create_object
from datum_compute.server.verbs.metadata import read_metadata
from datum_compute.server.verbs.prepare import (
    PreparedObject,
    apply_context_rules,
    check_type_meta,
    prepare_finalize,
    prepare_status,
    prepare_update,
)
from datum_compute.server.verbs.scale import is_scale
from datum_compute.store.records import Record

# --- Finalizers of the platform, which only some users may remove
# (admission/rules/controller_owned.py). This depends on the user, so it is not an admission rule.


def keep_guards(
    authorizer: Authorizer, request: ApiRequest, sent: JsonObject, old: JsonObject
) -> JsonObject:
    """Return the object of a PUT with the finalizers that the user may not remove."""
    kept = keep_protected_finalizers(request.kind, sent, old)
    return sent if kept is sent or _may_remove_guards(authorizer, request) else kept


def check_guards(
    authorizer: Authorizer, request: ApiRequest, prepared: PreparedObject, old: JsonObject
) -> PreparedObject:
    """Add a cause for each finalizer that the user may not remove."""
    removed = removed_finalizers(request.kind, prepared.obj, old)
    if not removed or _may_remove_guards(authorizer, request):
        return prepared
    causes = (*prepared.causes, *finalizer_causes(request.kind, removed))
    return replace(prepared, causes=causes)


def _may_remove_guards(authorizer: Authorizer, request: ApiRequest) -> bool:
    kind, route = request.kind, request.route
    attributes = Attributes(RELEASE, kind.group, kind.plural, "", route.namespace, route.name)
    return authorizer.allows(request.user, request.plane, attributes)


# --- Updates


class _Prepare(Protocol):
    def __call__(
        self,
        resource: ServedResource,
        proposed: JsonObject,
        old: JsonObject,
        *,
        needs_version: bool,
    ) -> PreparedObject: ...


# By subresource.
_PREPARE: dict[str, _Prepare] = {
    "": prepare_update,
    "status": prepare_status,
    "scale": prepare_update,
    "finalize": prepare_finalize,
}


class UpdateRequest(msgspec.Struct, frozen=True):
    """A change of an object.

    ``build`` returns the changed object from the stored one. ``set_managers`` takes the stored
    object, the one from ``build`` and the one that will be stored, and returns the last with its
    managedFields.
    """

    build: Callable[[JsonObject], JsonObject]
    validation: FieldValidation
    needs_version: bool
    set_managers: Callable[[JsonObject, JsonObject, JsonObject], JsonObject]


def update(context: ServerContext, request: ApiRequest) -> Awaitable[Response]:
    body = decode_body(request.http)
    validation = parse_field_validation(request.query, request.http.body)
    if request.kind.put_creates and context.store.get(request.plane, request.key) is None:
        return _create_by_put(context, request, body, validation)

    def build(old: JsonObject) -> JsonObject:
        return keep_guards(context.authorizer, request, body, old)

    change = UpdateRequest(
        scale.propose_object(request, build),
        validation,
        needs_version=True,
        set_managers=update_managers(context, request),
    )
    return change_object(context, request, change)


def update_managers(
    context: ServerContext, request: ApiRequest
) -> Callable[[JsonObject, JsonObject, JsonObject], JsonObject]:
    """Return ``set_managers`` of a write that is not an apply."""
    return lambda old, sent, new: set_owners_after_update(request, old, sent, new, context.clock())


def _create_by_put(
    context: ServerContext, request: ApiRequest, body: JsonObject, validation: FieldValidation
) -> Awaitable[Response]:
    """Create an object by a PUT to its name, which some built-in kinds allow."""
    check_may_create(context, request)
    name = read_metadata(body).name
    if name != request.route.name:
        raise BadRequest(
            f"the name of the object ({shorten(name)}) does not match the name on "
            f"the URL ({request.route.name})"
        )
    return create_object(context, request, build_create(context, request, body, validation))


async def change_object(
    context: ServerContext, request: ApiRequest, change: UpdateRequest
) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    is_dry_run = parse_dry_run(request.query)

    async def attempt() -> tuple[bytes, dict[str, str]]:
        record = context.store.get(request.plane, request.key)
        if record is None:
            raise context.builtin_definitions.missing_error(request.kind, request.key)
        conversion = request.resource.conversion
        old = conversion.decode_served(record)
        sent = check_type_meta(request.kind, change.build(old))
        prepare = _PREPARE[request.route.subresource]
        prepared = prepare(request.resource, sent, old, needs_version=change.needs_version)
        prepared = check_guards(context.authorizer, request, prepared, old)
        prepared = apply_context_rules(context, request, prepared, old)
        headers = prepared.raise_if_invalid(request.kind, change.validation)
        new = prepared.obj
        if request.resource.is_definition:
            new = definitions.with_status(context, request.registry, new, old)
        new = change.set_managers(old, sent, new)
        new = with_author(request.kind, new, old, request.user.name)
        if json_equal(new, old) and conversion.is_current(record):
            return conversion.encode_served(record), headers
        return await _store(context, request, new, record, is_dry_run=is_dry_run), headers

    stored, headers = await commit.retry_on_conflict(context, request, request.route.name, attempt)
    if is_scale(request):
        return json_response(scale.scale_of(request.resource, decode(stored)), headers=headers)
    return json_response(representation.encode_response(stored), headers=headers)


def _store(
    context: ServerContext,
    request: ApiRequest,
    new: JsonObject,
    record: Record,
    *,
    is_dry_run: bool,
) -> Awaitable[bytes]:
    """Store the object. Remove it if it is being deleted and has no finalizers left."""
    if "deletionTimestamp" in new["metadata"] and not has_finalizers(request, new):
        return remove_object(context, request, new, record, is_dry_run=is_dry_run)
    return commit.put(context, request, record.key, new, old=record, dry_run=is_dry_run)


async def remove_object(
    context: ServerContext,
    request: ApiRequest,
    last: JsonObject,
    record: Record,
    *,
    is_dry_run: bool,
) -> bytes:
    """Remove an object from the store. A namespace or a definition must have no objects left."""
    name = record.key.name
    if request.resource.is_namespace:
        namespaces.check_empty(context, request.registry, request.plane, name)
        if not is_dry_run:
            await _remove_default_objects(context, request)
    if not request.resource.is_definition:
        return await commit.remove(context, request, last, old=record, dry_run=is_dry_run)
    definitions.check_empty(context, request.plane, name)
    body = await commit.remove(context, request, last, old=record, dry_run=is_dry_run)
    if not is_dry_run:
        context.store.close_watches(request.plane, name)
    return body


async def _remove_default_objects(context: ServerContext, request: ApiRequest) -> None:
    try:
        await namespaces.remove_default_objects(context, request.plane, request.route.name)
    except (Conflict, NotFound) as error:
        raise commit.ConcurrentWrite from error


def has_finalizers(request: ApiRequest, obj: JsonObject) -> bool:
    """Return True if finalizers delay the removal of an object."""
    if obj["metadata"].get("finalizers"):
        return True
    return request.resource.is_namespace and bool(obj.get("spec", {}).get("finalizers"))
