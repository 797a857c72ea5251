"""From what a caller sent to what will be stored: pure functions, no store, no clock.

Rules kept here: server-owned fields cannot be set by callers, the main endpoint leaves status
alone and the status endpoint everything else, generation counts changes of the rest, terminating
objects take no new finalizers, and every error of one write is reported together.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from datum_compute.admission.chain import admit, unsupported_fields
from datum_compute.admission.findings import invalid
from datum_compute.api.errors import BadRequest, Cause, Invalid, RequestEntityTooLarge, shorten
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.report import limit_causes
from datum_compute.api.schema.validate import Report
from datum_compute.server.discovery.resources import ServedResource, is_namespace
from datum_compute.server.encoding.body import same_fields
from datum_compute.server.encoding.request_options import FieldValidation
from datum_compute.server.encoding.responses import (
    conflict,
    field_error,
    field_forbidden,
    stopped_check,
)
from datum_compute.server.verbs import namespaces
from datum_compute.server.verbs.metadata import (
    RequestMetadata,
    created_metadata,
    metadata_problems,
    read_metadata,
    updated_metadata,
    with_next_generation,
)


class PreparedObject(msgspec.Struct, frozen=True):
    """An object as it would be stored, the fields that were dropped on the way, and what is
    wrong with it. Nothing may be stored before ``accepted``."""

    obj: JsonObject
    unknown: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()

    def accepted(self, kind: KindInfo[Any], validation: FieldValidation) -> dict[str, str]:
        """The headers of the answer; raises when the object may not be stored. An unknown field
        is said first: it is often the reason why a known one is missing."""
        headers = validation.enforce(kind, self.unknown, self.warnings)
        if self.causes:
            raise invalid(kind, self.obj["metadata"].get("name", ""), self.causes)
        return headers


class NewObjectIdentity(msgspec.Struct, frozen=True):
    """What the server gives a new object."""

    name: str
    namespace: str
    uid: str
    now: float


def check_type_meta(kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
    """The object with its apiVersion and kind; refuses another kind than the path names."""
    wanted = {"apiVersion": kind.api_version, "kind": kind.kind}
    for field, expected in wanted.items():
        found = obj.get(field)
        if found is None and kind.built_in:
            continue
        if not found:
            raise BadRequest(f"Object '{field}' is missing: it must be {expected!r}")
        if found != expected:
            shown = shorten(str(found))
            raise BadRequest(
                f"the {field} in the data ({shown}) does not match the expected {field} "
                f"({expected})"
            )
    return {**wanted, **obj, **wanted}


def prepare_create(
    resource: ServedResource,
    obj: JsonObject,
    incoming: RequestMetadata,
    identity: NewObjectIdentity,
    status: Any = None,
) -> PreparedObject:
    """``status`` is the one to begin with, where that is the caller's business."""
    kind = resource.kind
    metadata = created_metadata(
        kind,
        incoming,
        name=identity.name,
        namespace=identity.namespace,
        uid=identity.uid,
        now=identity.now,
    )
    new = {**_main_part(kind, obj), "metadata": metadata}
    if is_namespace(kind):
        new = namespaces.prepared_for_create(new)
    proposal = validate_and_admit(
        resource, new, None, metadata_problems(kind, metadata), incoming.unknown
    )
    if is_namespace(kind):
        return replace(proposal, obj=namespaces.activated(proposal.obj))
    if status is not None:
        return _with_status(resource, proposal, status)
    if resource.initial_status is not None:
        return replace(proposal, obj={**proposal.obj, "status": resource.initial_status})
    return proposal


def prepare_update(
    resource: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> PreparedObject:
    """A write through the main endpoint."""
    kind = resource.kind
    incoming = _matching_metadata(kind, proposed, old, needs_version=needs_version)
    metadata = updated_metadata(incoming, old["metadata"])
    main, main_before = _main_part(kind, proposed), _main_part(kind, old)
    if is_namespace(kind):
        metadata = namespaces.labelled(metadata)
        main["spec"] = main_before.get("spec", {})
    causes = _new_finalizers(metadata, old["metadata"])
    if not same_fields(metadata, old["metadata"]):
        causes += limit_causes(metadata_problems(kind, metadata))
    new = {**main, "metadata": metadata}
    if _same_but_metadata(new, main_before):
        # Nothing to check: what is stored stays valid, whatever the rules have become.
        return PreparedObject(_with_status_of(old, kind, new), incoming.unknown, tuple(causes))
    checked = validate_and_admit(resource, new, old, causes, incoming.unknown)
    new = checked.obj
    if not _same_but_metadata(new, main_before):
        new = {**new, "metadata": with_next_generation(kind, metadata)}
    return replace(checked, obj=_with_status_of(old, kind, new))


def updated_status(
    resource: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> PreparedObject:
    """A write through the status endpoint: nothing but the status changes."""
    _matching_metadata(resource.kind, proposed, old, needs_version=needs_version)
    status = proposed.get("status")
    rest = PreparedObject({name: value for name, value in old.items() if name != "status"})
    return rest if status is None else _with_status(resource, rest, status)


def _with_status(resource: ServedResource, rest: PreparedObject, status: Any) -> PreparedObject:
    report = Report()
    try:
        checked = resource.check_status(status, "status", report)
    except (Invalid, RequestEntityTooLarge) as error:
        raise stopped_check(error, resource.kind, rest.obj, report) from error
    return replace(
        rest,
        obj={**rest.obj, "status": checked},
        unknown=(*rest.unknown, *report.unknown),
        causes=(*rest.causes, *report.errors),
    )


def finalized_namespace(
    resource: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> PreparedObject:
    """A write through the finalize endpoint: nothing but spec.finalizers changes."""
    _matching_metadata(resource.kind, proposed, old, needs_version=needs_version)
    spec = proposed.get("spec")
    finalizers = (spec if isinstance(spec, dict) else {}).get("finalizers") or []
    kind, spec = resource.kind, {**old.get("spec", {}), "finalizers": finalizers}
    new = {**_main_part(kind, old), "spec": spec}
    checked = validate_and_admit(resource, new, old, namespaces.finalizer_problems(new, old), ())
    return replace(checked, obj=_with_status_of(old, kind, checked.obj))


def _main_part(kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
    """The object without its status, where that has an endpoint of its own."""
    main = dict(obj)
    if kind.has_status:
        main.pop("status", None)
    return main


def _with_status_of(old: JsonObject, kind: KindInfo[Any], new: JsonObject) -> JsonObject:
    return {**new, "status": old["status"]} if kind.has_status and "status" in old else new


def _same_but_metadata(left: JsonObject, right: JsonObject) -> bool:
    return same_fields({**left, "metadata": None}, {**right, "metadata": None})


def _matching_metadata(
    kind: KindInfo[Any], proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> RequestMetadata:
    """The metadata sent, if it speaks of this very object at this very version."""
    present = old["metadata"]
    incoming = read_metadata(proposed, present)
    name, namespace = present["name"], present.get("namespace", "")
    if incoming.name != name:
        raise BadRequest(
            f"the name of the object ({shorten(incoming.name)}) does not match the "
            f"name on the URL ({name})"
        )
    if incoming.namespace and incoming.namespace != namespace:
        raise BadRequest(
            f"the namespace of the object ({shorten(incoming.namespace)}) does not "
            f"match the namespace on the request ({namespace})"
        )
    if incoming.uid and incoming.uid != present["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {shorten(incoming.uid)}, "
            f"UID in object meta: {present['uid']}"
        )
        raise conflict(kind, name, why)
    if not incoming.version and needs_version and kind.needs_version:
        why = "must be specified for an update"
        field = "metadata.resourceVersion"
        raise invalid(kind, name, [field_error(field, "", why)])
    if incoming.version and incoming.version != present["resourceVersion"]:
        raise conflict(kind, name)
    return incoming


def _new_finalizers(metadata: JsonObject, old: JsonObject) -> list[Cause]:
    if "deletionTimestamp" not in old:
        return []
    added = sorted(set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())))
    if not added:
        return []
    why = "no new finalizers can be added if the object is being deleted, found new finalizers "
    return [field_forbidden("metadata.finalizers", why + ", ".join(added))]


def validate_and_admit(
    resource: ServedResource,
    new: JsonObject,
    old: JsonObject | None,
    causes: Iterable[Cause],
    unknown: tuple[str, ...],
) -> PreparedObject:
    """The object pruned, defaulted and admitted, with all that was found on the way."""
    report = Report()
    try:
        checked = resource.check_main(new, "", report)
    except (Invalid, RequestEntityTooLarge) as error:
        raise stopped_check(error, resource.kind, new, report) from error
    admitted, more = (checked, []) if report.errors else admit(resource.kind, checked, old)
    if not report.unknown:
        found = limit_causes(chain(causes, report.errors, more))
        return PreparedObject(admitted, unknown, tuple(found))
    refused = unsupported_fields(resource.kind, report.unknown)
    dropped = (path for path in report.unknown if path not in refused)
    found = limit_causes(chain(causes, report.errors, more, refused.values()))
    return PreparedObject(admitted, (*unknown, *dropped), tuple(found))
