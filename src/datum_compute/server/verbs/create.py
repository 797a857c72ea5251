"""POST to a collection: a new object, under its own name or a generated one.

Its status is not the business of whoever creates it, as in Kubernetes. Who may write the status as
well can ask for it to be kept (``withStatus``): a copy is then whole with its first write. An API
server that does not know of that lets it fall.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from datum_compute.admission.findings import invalid
from datum_compute.admission.rules.controller_owned import with_author
from datum_compute.api.errors import AlreadyExists, BadRequest, Cause
from datum_compute.api.http import JSON, Response
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.managed_fields import owned_at_creation
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.body import decode_body
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import (
    FieldValidation,
    dry_run,
    field_validation,
    flag,
)
from datum_compute.server.encoding.responses import already_exists, with_newline
from datum_compute.server.routing import ApiRequest, attributes_of
from datum_compute.server.verbs import commit, definitions, namespaces
from datum_compute.server.verbs.admission_lookups import apply_context_rules
from datum_compute.server.verbs.metadata import RequestMetadata, read_metadata
from datum_compute.server.verbs.prepare import NewObjectIdentity, check_type_meta, prepare_create

GENERATED_BASE_MAX = 58
GENERATED_ATTEMPTS = 8


class CreateRequest(msgspec.Struct, frozen=True):
    """A create that has been read and not yet been tried."""

    obj: JsonObject
    incoming: RequestMetadata
    validation: FieldValidation
    dry_run: bool
    own: Callable[[JsonObject], JsonObject]  # puts the first owner of fields into the new object
    status: Any = None  # to begin with, of one that comes with it


def create(context: ServerContext, request: ApiRequest) -> Awaitable[Response]:
    body = decode_body(request.http)
    validation = field_validation(request.query, request.http.body)
    creation = creation_of(context, request, body, validation)
    return create_object(context, request, creation)


async def create_object(
    context: ServerContext,
    request: ApiRequest,
    creation: CreateRequest,
) -> Response:
    representation = select_representation(request.kind, request.http, context.clock)
    if creation.incoming.version and not creation.dry_run:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    _check_sent_metadata(request, creation.incoming)
    name, stored, headers = await _created(context, request, creation)
    body = with_newline(representation.single(stored))
    return Response(201, body, JSON, headers, created=name)


def check_may_create(context: ServerContext, request: ApiRequest) -> None:
    """For requests that were let through as a change and turn out to create."""
    wanted = attributes_of("create", request.route, {})
    context.authorizer.check(request.user, request.plane, wanted)


def creation_of(
    context: ServerContext, request: ApiRequest, body: JsonObject, validation: FieldValidation
) -> CreateRequest:
    """A plain create of what was sent."""
    obj = check_type_meta(request.kind, body)
    status = _status_to_keep(context, request, obj)
    return CreateRequest(
        obj=obj,
        incoming=read_metadata(obj),
        validation=validation,
        dry_run=dry_run(request.query),
        own=lambda new: owned_at_creation(request, obj, new, status, context.clock()),
        status=status,
    )


def _status_to_keep(context: ServerContext, request: ApiRequest, obj: JsonObject) -> Any:
    """None if it is not to be kept; what is no status is refused later, with its field."""
    status = obj.get("status")
    if status is None or not request.kind.has_status or not flag(request.query, "withStatus"):
        return None
    if request.resource.is_namespace or request.resource.is_definition:
        return None  # the server itself says how those are
    endpoint = replace(request.route, subresource="status")
    wanted = attributes_of("patch", endpoint, {})
    context.authorizer.check(request.user, request.plane, wanted)
    return status


def _check_sent_metadata(request: ApiRequest, incoming: RequestMetadata) -> None:
    if incoming.namespace and incoming.namespace != request.route.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the "
            f"request ({request.route.namespace or 'none'})"
        )
    if not incoming.name and not incoming.fields.get("generateName"):
        required = "Required value: name or generateName is required"
        cause = Cause("metadata.name", "FieldValueRequired", required)
        raise invalid(request.kind, "", [cause])


async def _created(
    context: ServerContext,
    request: ApiRequest,
    creation: CreateRequest,
) -> tuple[str, bytes, dict[str, str]]:
    """Name, stored body and warnings; a generated name that is taken is drawn again."""
    for left in reversed(range(GENERATED_ATTEMPTS)):
        name = creation.incoming.name or _generated(context, creation.incoming)
        identity = NewObjectIdentity(
            name, request.route.namespace, context.new_uid(), context.clock()
        )
        try:
            attempt = partial(_attempt, context, request, creation, identity)
            return name, *await commit.retry_on_conflict(context, request, name, attempt)
        except AlreadyExists:
            if creation.incoming.name or not left:
                raise
    raise AssertionError("the last attempt returns or raises")


async def _attempt(
    context: ServerContext,
    request: ApiRequest,
    creation: CreateRequest,
    identity: NewObjectIdentity,
) -> tuple[bytes, dict[str, str]]:
    # From the namespace check to the moment the store has taken the write nothing is awaited.
    plane, kind, key = request.plane, request.kind, request.key_of(identity.name)
    if kind.namespaced:
        namespaces.check_accepts(context, plane, identity.namespace, kind, identity.name)
    if request.resource.is_definition and context.builtin_definitions.get(key) is not None:
        raise already_exists(kind, identity.name)
    if kind.defined:
        definitions.check_accepts(context, plane, kind)
    proposal = prepare_create(
        request.resource, creation.obj, creation.incoming, identity, creation.status
    )
    proposal = apply_context_rules(context, request, proposal, None)
    headers = proposal.accepted(kind, creation.validation)
    new = proposal.obj
    if definitions.is_definition(kind):
        new = definitions.with_status(context, request.registry, new, None)
    owned = with_author(kind, creation.own(new), None, request.user.name)
    with context.in_flight_creates.track(plane, identity.namespace, kind.storage):
        stored = await commit.put(context, request, key, owned, old=None, dry_run=creation.dry_run)
    return stored, headers


def _generated(context: ServerContext, incoming: RequestMetadata) -> str:
    base: str = incoming.fields["generateName"]
    return base[:GENERATED_BASE_MAX] + context.new_suffix()
