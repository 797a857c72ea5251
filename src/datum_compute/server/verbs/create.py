"""POST to a collection: creates an object, under its own name or a generated one.

The status of a new object is dropped, as in Kubernetes, unless the caller may also write the status
and sets ``withStatus``: a controller then copies an object completely with one write. API servers
that do not know the parameter ignore it.
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
from datum_compute.api.http import Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.managed_fields import set_owners_at_creation
from datum_compute.server.context import ServerContext
from datum_compute.server.encoding.body import decode_body
from datum_compute.server.encoding.representation import select_representation
from datum_compute.server.encoding.request_options import (
    FieldValidation,
    parse_dry_run,
    parse_field_validation,
    parse_flag,
)
from datum_compute.server.encoding.responses import already_exists, conflict, not_found
from datum_compute.server.routing import ApiRequest, attributes_of
from datum_compute.server.verbs import commit, definitions, namespaces
from datum_compute.server.verbs.metadata import RequestMetadata, read_metadata
from datum_compute.server.verbs.prepare import (
    NewObjectIdentity,
    apply_context_rules,
    check_type_meta,
    prepare_create,
)
from datum_compute.store.journal import ObjectKey

GENERATED_BASE_MAX = 58
GENERATED_ATTEMPTS = 8


class CreateRequest(msgspec.Struct, frozen=True):
    """A create whose body has been decoded."""

    obj: JsonObject
    metadata: RequestMetadata
    validation: FieldValidation
    dry_run: bool
    # Adds managedFields to the object that will be stored.
    set_managers: Callable[[JsonObject], JsonObject]
    status: Any = None  # the status to store; None drops the status


def create(context: ServerContext, request: ApiRequest) -> Awaitable[Response]:
    body = decode_body(request.http)
    validation = parse_field_validation(request.query, request.http.body)
    return create_object(context, request, build_create(context, request, body, validation))


async def create_object(
    context: ServerContext, request: ApiRequest, creation: CreateRequest
) -> Response:
    """Store a new object. Try again while another write of its name is in progress, or with another
    generated name if the name is taken."""
    representation = select_representation(request.kind, request.http, context.clock)
    metadata = creation.metadata
    if metadata.version and not creation.dry_run:
        raise BadRequest("resourceVersion should not be set on objects to be created")
    _check_metadata(request, metadata)
    identity = _new_identity(context, request, metadata)
    for attempts_left in reversed(range(commit.ATTEMPTS if metadata.name else GENERATED_ATTEMPTS)):
        try:
            # Nothing is awaited from the check of the namespace until the store accepts the write.
            new, headers = _prepare_object(context, request, creation, identity)
            stored = await commit.put(
                context, request, identity.key, new, old=None, dry_run=creation.dry_run
            )
        except commit.ConcurrentWrite:
            await commit.wait_for_change(context, request)
        except AlreadyExists:
            if metadata.name or not attempts_left:
                raise
            identity = _new_identity(context, request, metadata)
        else:
            body = representation.encode_response(stored)
            return Response(201, body, headers=headers, created=identity.key.name)
    raise conflict(request.kind, identity.key.name)


def check_may_create(context: ServerContext, request: ApiRequest) -> None:
    """Authorize the create of an update or an apply whose object does not exist."""
    attributes = attributes_of("create", request.route, {})
    context.authorizer.check(request.user, request.plane, attributes)


def build_create(
    context: ServerContext, request: ApiRequest, body: JsonObject, validation: FieldValidation
) -> CreateRequest:
    """Return the create of a POST or a PUT."""
    obj = check_type_meta(request.kind, body)
    status = _status_to_store(context, request, obj) if "status" in obj else None
    return CreateRequest(
        obj=obj,
        metadata=read_metadata(obj),
        validation=validation,
        dry_run=parse_dry_run(request.query),
        set_managers=partial(set_owners_at_creation, request, obj, status),
        status=status,
    )


def _status_to_store(context: ServerContext, request: ApiRequest, obj: JsonObject) -> Any:
    """Return the status that was sent with ``withStatus``. It is validated later."""
    status = obj["status"]
    if status is None or not request.kind.has_status or not parse_flag(request.query, "withStatus"):
        return None
    if request.resource.is_namespace or request.resource.is_definition:
        return None  # the server sets the status of these kinds
    status_route = replace(request.route, subresource="status")
    attributes = attributes_of("patch", status_route, {})
    context.authorizer.check(request.user, request.plane, attributes)
    return status


def _check_metadata(request: ApiRequest, metadata: RequestMetadata) -> None:
    if metadata.namespace and metadata.namespace != request.route.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the "
            f"request ({request.route.namespace or 'none'})"
        )
    if not metadata.name and not metadata.fields.get("generateName"):
        cause = Cause.required("metadata.name", "name or generateName is required")
        raise invalid(request.kind, "", [cause])


def _prepare_object(
    context: ServerContext,
    request: ApiRequest,
    creation: CreateRequest,
    identity: NewObjectIdentity,
) -> tuple[JsonObject, dict[str, str]]:
    """Return the object to store, and the headers with warnings. Raise if it may not be stored."""
    kind, resource = request.kind, request.resource
    if kind.namespaced:
        namespace = ObjectKey(NAMESPACE.storage, "", identity.key.namespace)
        record = context.store.get(request.plane, namespace)
        if record is None:
            raise not_found(NAMESPACE, namespace.name)
        if record.terminating:
            raise namespaces.terminating_error(kind, identity.key)
    if kind.defined:
        definitions.check_accepts(context, request.plane, kind)
    if resource.is_definition and context.builtin_definitions.get(identity.key) is not None:
        raise already_exists(kind, identity.key.name)
    prepared = prepare_create(resource, creation.obj, creation.metadata, identity, creation.status)
    prepared = apply_context_rules(context, request, prepared, None)
    headers = prepared.raise_if_invalid(kind, creation.validation)
    new = prepared.obj
    if resource.is_definition:
        new = definitions.with_status(context, request.registry, new, None)
    return with_author(kind, creation.set_managers(new), None, request.user.name), headers


def _new_identity(
    context: ServerContext, request: ApiRequest, metadata: RequestMetadata
) -> NewObjectIdentity:
    name = metadata.name
    if not name:
        name = metadata.fields["generateName"][:GENERATED_BASE_MAX] + context.new_suffix()
    key = ObjectKey(request.kind.storage, request.route.namespace, name)
    return NewObjectIdentity(key, context.new_uid(), context.clock())
