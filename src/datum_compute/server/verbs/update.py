"""PUT, and the second half of every PATCH: one object, or one subresource of it, changes.

Each subresource is one function in ``_REWRITES`` that says which part of the object it may change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec
from msgspec.structs import replace

from datum_compute.admission.rules.controller_owned import (
    RELEASE,
    guard_causes,
    released_guards,
    with_author,
    with_guards,
)
from datum_compute.api.errors import BadRequest, Conflict, NotFound, shorten
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.apply.managed_fields import owned_after_update
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ServedResource
from datum_compute.server.encoding.body import decode_body, json_equal
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import FieldValidation, dry_run, field_validation
from datum_compute.server.encoding.responses import json_response
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs import commit, definitions, namespaces, scale
from datum_compute.server.verbs.admission_lookups import apply_context_rules
from datum_compute.server.verbs.create import check_may_create, create_object, creation_of
from datum_compute.server.verbs.metadata import read_metadata
from datum_compute.server.verbs.prepare import (
    PreparedObject,
    check_type_meta,
    finalized_namespace,
    prepare_update,
    updated_status,
)
from datum_compute.server.verbs.scale import is_scale
from datum_compute.store.records import Record

# --- Who may take away a finalizer that stands for something of the platform's
# (admission/finalizers) Like the rules about roles this asks who writes, so it lies here and not in
# the admission chain.


def with_kept_guards(
    authorizer: Authorizer, request: ApiRequest, sent: JsonObject, old: JsonObject
) -> JsonObject:
    """What a PUT replaces the object with."""
    kept = with_guards(request.kind, sent, old)
    return sent if kept is sent or _may_release(authorizer, request) else kept


def with_guard_rule(
    authorizer: Authorizer, request: ApiRequest, proposal: PreparedObject, old: JsonObject
) -> PreparedObject:
    released = released_guards(request.kind, proposal.obj, old)
    if not released or _may_release(authorizer, request):
        return proposal
    return replace(proposal, causes=(*proposal.causes, *guard_causes(request.kind, released)))


def _may_release(authorizer: Authorizer, request: ApiRequest) -> bool:
    route = request.route
    wanted = Attributes(
        RELEASE, request.kind.group, request.kind.plural, "", route.namespace, route.name
    )
    return authorizer.allows(request.user, request.plane, wanted)


# --- update


class _Rewrite(Protocol):
    def __call__(
        self,
        resource: ServedResource,
        proposed: JsonObject,
        old: JsonObject,
        *,
        needs_version: bool,
    ) -> PreparedObject: ...


_REWRITES: dict[str, _Rewrite] = {
    "": prepare_update,
    "status": updated_status,
    "scale": prepare_update,
    "finalize": finalized_namespace,
}


class UpdateRequest(msgspec.Struct, frozen=True):
    """What a caller wants of an object: its next state, from its present one.

    ``own`` gets the present object, the proposed one and the one that would be stored, and gives
    the last with its field owners.
    """

    propose: Callable[[JsonObject], JsonObject]
    validation: FieldValidation
    needs_version: bool
    own: Callable[[JsonObject, JsonObject, JsonObject], JsonObject]


def update(context: ServerContext, request: ApiRequest) -> Awaitable[Response]:
    body = decode_body(request.http)
    validation = field_validation(request.query, request.http.body)
    if request.kind.put_creates and context.store.get(request.plane, request.key) is None:
        return _put_new(context, request, body, validation)
    change = UpdateRequest(
        scale.propose_object(
            request, lambda old: with_kept_guards(context.authorizer, request, body, old)
        ),
        validation,
        needs_version=True,
        own=plain_owner(context, request),
    )
    return change_object(context, request, change)


def plain_owner(
    context: ServerContext, request: ApiRequest
) -> Callable[[JsonObject, JsonObject, JsonObject], JsonObject]:
    return lambda old, sent, new: owned_after_update(request, old, sent, new, context.clock())


def _put_new(
    context: ServerContext,
    request: ApiRequest,
    body: JsonObject,
    validation: FieldValidation,
) -> Awaitable[Response]:
    """Some built-in kinds are created by a PUT to the name they will have."""
    check_may_create(context, request)
    named = read_metadata(body).name
    if named != request.route.name:
        raise BadRequest(
            f"the name of the object ({shorten(named)}) does not match the name on "
            f"the URL ({request.route.name})"
        )
    creation = creation_of(context, request, body, validation)
    return create_object(context, request, creation)


async def change_object(
    context: ServerContext, request: ApiRequest, change: UpdateRequest
) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    dry = dry_run(request.query)

    async def attempt() -> tuple[bytes, dict[str, str]]:
        record = context.store.get(request.plane, request.key)
        if record is None:
            raise context.builtin_definitions.absence(request.kind, request.key)
        conversion = request.resource.conversion
        old = conversion.decode_served(record)
        proposed = check_type_meta(request.kind, change.propose(old))
        rewrite = _REWRITES[request.route.subresource]
        proposal = rewrite(request.resource, proposed, old, needs_version=change.needs_version)
        proposal = with_guard_rule(context.authorizer, request, proposal, old)
        proposal = apply_context_rules(context, request, proposal, old)
        headers = proposal.accepted(request.kind, change.validation)
        new = proposal.obj
        if request.resource.is_definition:
            new = definitions.with_status(context, request.registry, new, old)
        new = with_author(request.kind, change.own(old, proposed, new), old, request.user.name)
        if json_equal(new, old) and conversion.is_current(record):
            return conversion.encode_served(record), headers
        return await _written(context, request, new, record, dry=dry), headers

    stored, headers = await commit.retry_on_conflict(context, request, request.route.name, attempt)
    if is_scale(request):
        return json_response(scale.scale_of(request.resource, decode(stored)), headers=headers)
    return json_response(representation.single(stored), headers=headers)


def _written(
    context: ServerContext,
    request: ApiRequest,
    new: JsonObject,
    record: Record,
    *,
    dry: bool,
) -> Awaitable[bytes]:
    """Stored; or gone, if this write took the last finalizer of a terminating object."""
    if "deletionTimestamp" in new["metadata"] and not has_finalizers(request, new):
        return remove_object(context, request, new, record, dry=dry)
    return commit.put(context, request, record.key, new, old=record, dry_run=dry)


async def remove_object(
    context: ServerContext,
    request: ApiRequest,
    last: JsonObject,
    record: Record,
    *,
    dry: bool,
) -> bytes:
    """Gone for good; what holds others must be empty."""
    name = record.key.name
    if request.resource.is_namespace:
        namespaces.check_empty(context, request.registry, request.plane, name)
        if not dry:
            await _remove_default_objects(context, request)
    if not request.resource.is_definition:
        return await commit.remove(context, request, last, old=record, dry_run=dry)
    definitions.check_empty(context, request.plane, name)
    body = await commit.remove(context, request, last, old=record, dry_run=dry)
    if not dry:
        context.store.forget(request.plane, name)
    return body


async def _remove_default_objects(context: ServerContext, request: ApiRequest) -> None:
    try:
        await namespaces.remove_default_objects(context, request.plane, request.route.name)
    except (Conflict, NotFound) as error:
        raise commit.ConcurrentWrite from error


def has_finalizers(request: ApiRequest, obj: JsonObject) -> bool:
    """Whether finalizers keep an object from going at once."""
    if obj["metadata"].get("finalizers"):
        return True
    return request.resource.is_namespace and bool(obj.get("spec", {}).get("finalizers"))
