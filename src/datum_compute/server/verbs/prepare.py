"""Prepares the object that a caller sent for the store, and checks it. Nothing is stored here.

Rules:
- Callers cannot set the fields of the server.
- The main endpoint does not change the status; the status endpoint changes nothing else.
- ``generation`` counts the changes of everything except metadata and status.
- An object that is being deleted takes no new finalizers.
- All errors of one write are reported together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec.structs import replace

from datum_compute.admission.chain import admit, unsupported_fields
from datum_compute.admission.context_rules import (
    CONTEXT_RULES,
    DELETION_RULES,
    evaluate,
    evaluate_deletion,
    queries_of_deletion,
    queries_of_write,
)
from datum_compute.admission.findings import invalid
from datum_compute.admission.queries import (
    AccessQuery,
    Answers,
    Deletion,
    ListQuery,
    Query,
    Write,
)
from datum_compute.api.errors import BadRequest, Cause, Invalid, RequestEntityTooLarge, shorten
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.api.schema.report import ERRORS_MAX, limit_causes
from datum_compute.api.schema.validate import ValidationReport
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.context import ServerContext
from datum_compute.server.discovery.resources import ServedResource
from datum_compute.server.encoding.body import same_fields
from datum_compute.server.encoding.request_options import FieldValidation
from datum_compute.server.encoding.responses import (
    conflict,
    stopped_check,
)
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs import namespaces
from datum_compute.server.verbs.metadata import (
    RequestMetadata,
    build_metadata,
    metadata_problems,
    read_metadata,
    update_metadata,
    with_next_generation,
)
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Store


class PreparedObject(msgspec.Struct, frozen=True):
    """An object as it will be stored, the unknown fields that were dropped, and its errors. Call
    ``raise_if_invalid`` before it is stored."""

    obj: JsonObject
    unknown: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()

    def raise_if_invalid(self, kind: KindInfo[Any], validation: FieldValidation) -> dict[str, str]:
        """Return the headers with warnings. Raise if the object may not be stored: first for
        unknown fields, which are often the reason why a required field is missing."""
        headers: dict[str, str] = {}
        if self.unknown or self.warnings or validation.duplicates:
            headers = validation.enforce(kind, self.unknown, self.warnings)
        if self.causes:
            raise invalid(kind, self.obj["metadata"].get("name", ""), self.causes)
        return headers


class NewObjectIdentity(msgspec.Struct, frozen=True):
    """The name, uid and creation time of a new object."""

    key: ObjectKey
    uid: str
    now: float


def check_type_meta(kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
    """Return the object with apiVersion and kind. Raise BadRequest for another kind than that of
    the path."""
    expected_types = {"apiVersion": kind.api_version, "kind": kind.kind}
    for field, expected in expected_types.items():
        value = obj.get(field)
        if value is None and kind.built_in:
            continue
        if not value:
            raise BadRequest(f"Object '{field}' is missing: it must be {expected!r}")
        if value != expected:
            raise BadRequest(
                f"the {field} in the data ({shorten(str(value))}) does not match the expected "
                f"{field} ({expected})"
            )
    return {**expected_types, **obj, **expected_types}


def prepare_create(
    resource: ServedResource,
    obj: JsonObject,
    sent: RequestMetadata,
    identity: NewObjectIdentity,
    status: Any = None,
) -> PreparedObject:
    """``status`` is the status that the caller sent, or None."""
    kind = resource.kind
    metadata = build_metadata(
        kind,
        sent,
        name=identity.key.name,
        namespace=identity.key.namespace,
        uid=identity.uid,
        now=identity.now,
    )
    new = {**obj, "metadata": metadata}
    if kind.has_status:
        new.pop("status", None)
    if resource.is_namespace:
        new = namespaces.prepare_namespace(new)
    prepared = validate_and_admit(
        resource, new, None, metadata_problems(resource.name_problem, metadata), sent.unknown
    )
    if resource.is_namespace:
        return replace(prepared, obj=namespaces.with_active_phase(prepared.obj))
    if status is not None:
        return _set_status(resource, prepared, status)
    if resource.initial_status is not None:
        return replace(prepared, obj={**prepared.obj, "status": resource.initial_status})
    return prepared


def prepare_update(
    resource: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> PreparedObject:
    """Prepare a write through the main endpoint."""
    kind = resource.kind
    sent = _check_metadata(kind, proposed, old, needs_version=needs_version)
    metadata = update_metadata(sent, old["metadata"])
    main, old_main = _without_status(kind, proposed), _without_status(kind, old)
    if resource.is_namespace:
        metadata = namespaces.with_name_label(metadata)
        main["spec"] = old_main.get("spec", {})
    causes = _validate_new_finalizers(metadata, old["metadata"])
    if not same_fields(metadata, old["metadata"]):
        causes += limit_causes(metadata_problems(resource.name_problem, metadata))
    new = {**main, "metadata": metadata}
    if _same_except_metadata(new, old_main):
        # The content is unchanged, so it is not validated again: rules may have become stricter.
        return PreparedObject(_with_old_status(old, kind, new), sent.unknown, tuple(causes))
    checked = validate_and_admit(resource, new, old, causes, sent.unknown)
    new = checked.obj
    if not _same_except_metadata(new, old_main):
        new = {**new, "metadata": with_next_generation(kind, metadata)}
    return replace(checked, obj=_with_old_status(old, kind, new))


def prepare_status(
    resource: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> PreparedObject:
    """Prepare a write through the status endpoint: only the status changes."""
    _check_metadata(resource.kind, proposed, old, needs_version=needs_version)
    status = proposed.get("status")
    rest = PreparedObject({name: value for name, value in old.items() if name != "status"})
    return rest if status is None else _set_status(resource, rest, status)


def _set_status(resource: ServedResource, rest: PreparedObject, status: Any) -> PreparedObject:
    report = ValidationReport()
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


def prepare_finalize(
    resource: ServedResource, proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> PreparedObject:
    """Prepare a write through the finalize endpoint: only spec.finalizers changes."""
    _check_metadata(resource.kind, proposed, old, needs_version=needs_version)
    spec = proposed.get("spec")
    finalizers = (spec if isinstance(spec, dict) else {}).get("finalizers") or []
    kind, spec = resource.kind, {**old.get("spec", {}), "finalizers": finalizers}
    new = {**_without_status(kind, old), "spec": spec}
    checked = validate_and_admit(resource, new, old, namespaces.validate_finalizers(new, old), ())
    return replace(checked, obj=_with_old_status(old, kind, checked.obj))


def _without_status(kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
    """Return the object without its status, if the kind has a status endpoint."""
    main = dict(obj)
    if kind.has_status:
        main.pop("status", None)
    return main


def _with_old_status(old: JsonObject, kind: KindInfo[Any], new: JsonObject) -> JsonObject:
    return {**new, "status": old["status"]} if kind.has_status and "status" in old else new


def _same_except_metadata(left: JsonObject, right: JsonObject) -> bool:
    return same_fields({**left, "metadata": None}, {**right, "metadata": None})


def _check_metadata(
    kind: KindInfo[Any], proposed: JsonObject, old: JsonObject, *, needs_version: bool
) -> RequestMetadata:
    """Return the metadata that was sent. Raise unless its name, uid and version are those of the
    stored object."""
    stored = old["metadata"]
    sent = read_metadata(proposed)
    name, namespace = stored["name"], stored.get("namespace", "")
    if sent.name != name:
        raise BadRequest(
            f"the name of the object ({shorten(sent.name)}) does not match the "
            f"name on the URL ({name})"
        )
    if sent.namespace and sent.namespace != namespace:
        raise BadRequest(
            f"the namespace of the object ({shorten(sent.namespace)}) does not "
            f"match the namespace on the request ({namespace})"
        )
    if sent.uid and sent.uid != stored["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {shorten(sent.uid)}, "
            f"UID in object meta: {stored['uid']}"
        )
        raise conflict(kind, name, why)
    if not sent.version and needs_version and kind.needs_version:
        why = "must be specified for an update"
        raise invalid(kind, name, [Cause.invalid("metadata.resourceVersion", why, "")])
    if sent.version and sent.version != stored["resourceVersion"]:
        raise conflict(kind, name)
    return sent


def _validate_new_finalizers(metadata: JsonObject, old: JsonObject) -> list[Cause]:
    if "deletionTimestamp" not in old:
        return []
    added = sorted(set(metadata.get("finalizers", ())) - set(old.get("finalizers", ())))
    if not added:
        return []
    why = "no new finalizers can be added if the object is being deleted, found new finalizers "
    return [Cause.forbidden("metadata.finalizers", why + ", ".join(added))]


def validate_and_admit(
    resource: ServedResource,
    new: JsonObject,
    old: JsonObject | None,
    causes: Iterable[Cause],
    unknown: tuple[str, ...],
) -> PreparedObject:
    """Return the pruned, defaulted and admitted object, with its unknown fields and errors."""
    report = ValidationReport()
    try:
        checked = resource.check_main(new, "", report)
    except (Invalid, RequestEntityTooLarge) as error:
        raise stopped_check(error, resource.kind, new, report) from error
    admitted, found = (checked, report.errors)
    if not found:
        admitted, found = admit(resource.kind, checked, old)
    if report.unknown:
        rejected = unsupported_fields(resource.kind, report.unknown)
        found = [*found, *rejected.values()]
        unknown = (*unknown, *(path for path in report.unknown if path not in rejected))
    all_causes = tuple(islice(chain(causes, found), ERRORS_MAX + 1))
    if len(all_causes) > ERRORS_MAX:
        all_causes = tuple(limit_causes(all_causes))
    return PreparedObject(admitted, unknown, all_causes)


# --- Rules that depend on other objects or on permissions. The store is in memory, so their queries
# are answered synchronously.

CACHED_BYTES_MAX = 16 * 1024  # of one object
_decode_cached = lru_cache(maxsize=1024)(decode)


def answer_queries(
    context: ServerContext, request: ApiRequest, queries: Iterable[Query]
) -> Answers:
    """Return the permissions of the user, and the objects of the plane, that rules query."""
    allowed: dict[AccessQuery, bool] = {}
    listed: dict[ListQuery, list[JsonObject]] = {}
    for query in queries:
        if isinstance(query, AccessQuery):
            attributes = Attributes(
                query.verb, query.group, query.resource, "", query.namespace, query.name
            )
            allowed[query] = context.authorizer.allows(request.user, request.plane, attributes)
        else:
            listed[query] = list_objects(context.store, request.plane, query)
    return Answers(allowed, listed)


def list_objects(store: Store, plane: PlaneName, query: ListQuery) -> list[JsonObject]:
    """Return the objects of a query. Callers must not change them: small ones, such as instance
    types, are cached for the next write."""
    records: Sequence[Record] = ()
    if query.catalogue and store.has_plane(PLATFORM):
        records = store.snapshot(PLATFORM, query.kind.storage).records
    if not records:
        records = store.snapshot(plane, query.kind.storage).records
    objects = []
    for record in records:
        body = record.body
        decode_record = _decode_cached if len(body) <= CACHED_BYTES_MAX else decode
        objects.append(decode_record(body))
    return objects


def apply_context_rules(
    context: ServerContext, request: ApiRequest, prepared: PreparedObject, old: JsonObject | None
) -> PreparedObject:
    """Add the causes and warnings of the rules. An object that is invalid already is returned
    unchanged."""
    if request.kind.resource not in CONTEXT_RULES or prepared.causes or request.route.subresource:
        return prepared
    write = Write(
        request.kind,
        request.route.namespace,
        prepared.obj,
        old,
        now_s=context.clock(),
        deprecation_grace_s=context.deprecation_grace_s,
    )
    answers = answer_queries(context, request, queries_of_write(write))
    findings = evaluate(write, answers)
    if not findings.causes and not findings.warnings:
        return prepared
    return replace(prepared, causes=findings.causes, warnings=findings.warnings)


def check_deletion_rules(context: ServerContext, request: ApiRequest, old: JsonObject) -> None:
    """Raise Invalid if the object may not be deleted yet."""
    if request.kind.resource not in DELETION_RULES:
        return
    deletion = Deletion(request.kind, request.route.namespace, old)
    answers = answer_queries(context, request, queries_of_deletion(deletion))
    causes = evaluate_deletion(deletion, answers)
    if causes:
        raise invalid(request.kind, old["metadata"]["name"], causes)
