"""Runs the admission rules that depend on other objects or on permissions.

The store is in memory, so the queries of the rules are answered synchronously.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec.structs import replace

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
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.context import ServerContext
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.prepare import PreparedObject
from datum_compute.store.records import Record
from datum_compute.store.store import Store

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
