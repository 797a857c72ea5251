"""Server-side apply: PATCH with a configuration of which the caller owns every field.

The object is created when it is absent. ``ownership`` works out the rest.
"""

from __future__ import annotations

from datum_compute.api.errors import AlreadyExists, BadRequest, NotFound
from datum_compute.api.http import Response
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.server import problems
from datum_compute.server.apply.managed_fields import APPLY, Manager, entries_of, with_entries
from datum_compute.server.call import Call
from datum_compute.server.discovery.resources import Catalogue
from datum_compute.server.encoding.body import as_object, decoded_json_or_yaml, json_type
from datum_compute.server.fieldvalidation import field_validation
from datum_compute.server.options import dry_run, flag
from datum_compute.server.ownership.applying import Application
from datum_compute.server.ports import Ports
from datum_compute.server.tracking import field_manager, invalid_option
from datum_compute.server.verbs.create import Creation, check_may_create, create_object
from datum_compute.server.verbs.metadata import read_metadata
from datum_compute.server.verbs.prepare import identified
from datum_compute.server.verbs.update import Change, change_object

_ATTEMPTS = 8


async def apply(ports: Ports, catalogue: Catalogue, call: Call) -> Response:
    application = _application(call)
    change = Change(
        propose=lambda live: application.onto(live, timestamp(ports.clock())),
        validation=field_validation(call.query, call.request.body),
        needs_version=False,
        own=lambda old, sent, new: with_entries(new, entries_of(sent["metadata"])),
    )
    for _ in range(_ATTEMPTS):
        try:
            return await change_object(ports, catalogue, call, change)
        except NotFound as error:
            if call.route.subresource or error.kind != call.kind.plural:
                raise
        try:
            return await _created(ports, catalogue, call, application, change)
        except AlreadyExists:
            continue
    raise problems.conflict(call.kind, call.route.name)


async def _created(
    ports: Ports, catalogue: Catalogue, call: Call, application: Application, change: Change
) -> Response:
    check_may_create(ports, call)
    incoming = read_metadata(application.config)
    if incoming.uid or incoming.version:
        why = "the configuration names a uid or a resourceVersion, but there is no such object"
        raise problems.conflict(call.kind, call.route.name, why)
    creation = Creation(
        obj=application.config,
        incoming=incoming,
        validation=change.validation,
        dry_run=dry_run(call.query),
        own=lambda new: application.owning(new, timestamp(ports.clock())),
    )
    return await create_object(ports, catalogue, call, creation)


def _application(call: Call) -> Application:
    name = field_manager(call.query)
    if not name:
        why = "Required value: is required for apply patch"
        raise invalid_option("fieldManager", "FieldValueRequired", why)
    manager = Manager(name, APPLY, call.kind.api_version, call.route.subresource)
    force = flag(call.query, "force")
    shape = call.served.shape.of(call.route.subresource)
    return Application(_config(call), manager, force, shape)


def _config(call: Call) -> JsonObject:
    """The configuration, about the very object that the path names."""
    sent = as_object(decoded_json_or_yaml(call.request.body))
    for field in ("apiVersion", "kind"):
        if not sent.get(field):
            raise BadRequest(f"Object '{field}' is missing from the applied configuration")
    obj = identified(call.kind, sent)
    metadata = obj.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadRequest(f"metadata must be an object, not {json_type(metadata)}")
    if metadata.get("managedFields") is not None:
        raise BadRequest("metadata.managedFields must be nil")
    wanted = {"name": call.route.name, "namespace": call.route.namespace}
    for field, expected in wanted.items():
        found = metadata.get(field) or expected
        if found != expected:
            raise BadRequest(
                f"the {field} of the object ({problems.shortened(str(found))}) does not match "
                f"the {field} on the URL ({expected})"
            )
    named = {field: value for field, value in wanted.items() if value}
    return {**obj, "metadata": {**metadata, **named}}
