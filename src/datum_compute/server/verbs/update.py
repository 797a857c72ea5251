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
from datum_compute.api.errors import BadRequest, Conflict, NotFound
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.apply.managed_fields import owned_after_update
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ResourceRegistry, ServedResource, is_namespace
from datum_compute.server.encoding.body import decoded_body, json_equal
from datum_compute.server.encoding.representation import representation_of
from datum_compute.server.encoding.request_options import FieldValidation, dry_run, field_validation
from datum_compute.server.encoding.responses import json_answer, shortened
from datum_compute.server.routing import ResourceRequest
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
    authorizer: Authorizer, call: ResourceRequest, sent: JsonObject, old: JsonObject
) -> JsonObject:
    """What a PUT replaces the object with."""
    kept = with_guards(call.kind, sent, old)
    return sent if kept is sent or _may_release(authorizer, call) else kept


def with_guard_rule(
    authorizer: Authorizer, call: ResourceRequest, proposal: PreparedObject, old: JsonObject
) -> PreparedObject:
    released = released_guards(call.kind, proposal.obj, old)
    if not released or _may_release(authorizer, call):
        return proposal
    return replace(proposal, causes=(*proposal.causes, *guard_causes(call.kind, released)))


def _may_release(authorizer: Authorizer, call: ResourceRequest) -> bool:
    route = call.route
    wanted = Attributes(RELEASE, call.kind.group, call.kind.plural, "", route.namespace, route.name)
    return authorizer.allows(call.user, call.plane, wanted)


# --- update


class _Rewrite(Protocol):
    def __call__(
        self, served: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
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


def update(
    ports: ServerContext, catalogue: ResourceRegistry, call: ResourceRequest
) -> Awaitable[Response]:
    body = decoded_body(call.request)
    validation = field_validation(call.query, call.request.body)
    if call.kind.put_creates and ports.store.get(call.plane, call.key) is None:
        return _put_new(ports, catalogue, call, body, validation)
    change = UpdateRequest(
        scale.propose_object(call, lambda old: with_kept_guards(ports.authorizer, call, body, old)),
        validation,
        needs_version=True,
        own=plain_owner(ports, call),
    )
    return change_object(ports, catalogue, call, change)


def plain_owner(
    ports: ServerContext, call: ResourceRequest
) -> Callable[[JsonObject, JsonObject, JsonObject], JsonObject]:
    return lambda old, sent, new: owned_after_update(call, old, sent, new, ports.clock())


def _put_new(
    ports: ServerContext,
    catalogue: ResourceRegistry,
    call: ResourceRequest,
    body: JsonObject,
    validation: FieldValidation,
) -> Awaitable[Response]:
    """Some built-in kinds are created by a PUT to the name they will have."""
    check_may_create(ports, call)
    named = read_metadata(body).name
    if named != call.route.name:
        raise BadRequest(
            f"the name of the object ({shortened(named)}) does not match the name on "
            f"the URL ({call.route.name})"
        )
    creation = creation_of(ports, call, body, validation)
    return create_object(ports, catalogue, call, creation)


async def change_object(
    ports: ServerContext, catalogue: ResourceRegistry, call: ResourceRequest, change: UpdateRequest
) -> Response:
    shown = representation_of(call, ports.clock)
    dry = dry_run(call.query)

    async def attempt() -> tuple[bytes, dict[str, str]]:
        record = ports.store.get(call.plane, call.key)
        if record is None:
            raise ports.own.absence(call.kind, call.key)
        conversion = call.served.conversion
        old = conversion.object_of(record)
        proposed = check_type_meta(call.kind, change.propose(old))
        rewrite = _REWRITES[call.route.subresource]
        proposal = rewrite(call.served, proposed, old, needs_version=change.needs_version)
        proposal = with_guard_rule(ports.authorizer, call, proposal, old)
        proposal = apply_context_rules(ports, call, proposal, old)
        headers = proposal.accepted(call.kind, change.validation)
        new = proposal.obj
        if definitions.is_definition(call.kind):
            new = definitions.with_status(ports, catalogue, new, old)
        new = with_author(call.kind, change.own(old, proposed, new), old, call.user.name)
        if json_equal(new, old) and conversion.is_current(record):
            return conversion.body_of(record), headers
        return await _written(ports, catalogue, call, new, record, dry=dry), headers

    stored, headers = await commit.retry_on_conflict(ports, call, call.route.name, attempt)
    if is_scale(call):
        return json_answer(scale.scale_of(call.served, decode(stored)), headers=headers)
    return json_answer(shown.single(stored), headers=headers)


def _written(
    ports: ServerContext,
    catalogue: ResourceRegistry,
    call: ResourceRequest,
    new: JsonObject,
    record: Record,
    *,
    dry: bool,
) -> Awaitable[bytes]:
    """Stored; or gone, if this write took the last finalizer of a terminating object."""
    if "deletionTimestamp" in new["metadata"] and not has_finalizers(call, new):
        return remove_object(ports, catalogue, call, new, record, dry=dry)
    return commit.put(ports, call, record.key, new, old=record, dry_run=dry)


async def remove_object(
    ports: ServerContext,
    catalogue: ResourceRegistry,
    call: ResourceRequest,
    last: JsonObject,
    record: Record,
    *,
    dry: bool,
) -> bytes:
    """Gone for good; what holds others must be empty."""
    name = record.key.name
    if is_namespace(call.kind):
        namespaces.check_empty(ports, catalogue, call.plane, name)
        if not dry:
            await _remove_default_objects(ports, call)
    if not definitions.is_definition(call.kind):
        return await commit.remove(ports, call, last, old=record, dry_run=dry)
    definitions.check_empty(ports, call.plane, name)
    body = await commit.remove(ports, call, last, old=record, dry_run=dry)
    if not dry:
        ports.store.forget(call.plane, name)
    return body


async def _remove_default_objects(ports: ServerContext, call: ResourceRequest) -> None:
    try:
        await namespaces.remove_default_objects(ports, call.plane, call.route.name)
    except (Conflict, NotFound) as error:
        raise commit.ConcurrentWrite from error


def has_finalizers(call: ResourceRequest, obj: JsonObject) -> bool:
    """Whether finalizers keep an object from going at once."""
    if obj["metadata"].get("finalizers"):
        return True
    return is_namespace(call.kind) and bool(obj.get("spec", {}).get("finalizers"))
