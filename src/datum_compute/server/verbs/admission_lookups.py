"""Runs the admission rules that depend on other objects or on permissions.

The store is in memory, so the queries of the rules are answered synchronously.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec
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
from datum_compute.api.planes import PLATFORM
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.context import ServerContext
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.prepare import PreparedObject
from datum_compute.store.records import Record

_CACHED_BYTES_MAX = 16 * 1024  # of one object


class StoreAdmissionReader(msgspec.Struct, frozen=True):
    """Answers the queries of rules for one request: objects of its plane, and permissions of its
    user."""

    context: ServerContext
    request: ApiRequest

    def answer(self, queries: Iterable[Query]) -> Answers:
        queries = tuple(queries)
        return Answers(
            allowed={q: self._is_allowed(q) for q in queries if isinstance(q, AccessQuery)},
            listed={q: self._list(q) for q in queries if isinstance(q, ListQuery)},
        )

    def _is_allowed(self, query: AccessQuery) -> bool:
        attributes = Attributes(
            query.verb, query.group, query.resource, "", query.namespace, query.name
        )
        return self.context.authorizer.allows(self.request.user, self.request.plane, attributes)

    def _list(self, query: ListQuery) -> list[JsonObject]:
        store, resource = self.context.store, query.kind.storage
        records: Sequence[Record] = ()
        if query.catalogue and store.has_plane(PLATFORM):
            records = store.snapshot(PLATFORM, resource).records
        if not records:
            records = store.snapshot(self.request.plane, resource).records
        return list(map(decode_cached, records))


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
    answers = StoreAdmissionReader(context, request).answer(queries_of_write(write))
    findings = evaluate(write, answers)
    if not findings.causes and not findings.warnings:
        return prepared
    return replace(prepared, causes=findings.causes, warnings=findings.warnings)


def check_deletion_rules(context: ServerContext, request: ApiRequest, old: JsonObject) -> None:
    """Raise Invalid if the object may not be deleted yet."""
    if request.kind.resource not in DELETION_RULES:
        return
    deletion = Deletion(request.kind, request.route.namespace, old)
    answers = StoreAdmissionReader(context, request).answer(queries_of_deletion(deletion))
    causes = evaluate_deletion(deletion, answers)
    if causes:
        raise invalid(request.kind, old["metadata"]["name"], causes)


def decode_cached(record: Record) -> JsonObject:
    """Decode an object that rules only read, such as an instance type. Cache it for the next write,
    unless it is large."""
    body = record.body
    return _decode_small(body) if len(body) <= _CACHED_BYTES_MAX else _decode_object(body)


def _decode_object(body: bytes) -> JsonObject:
    obj: JsonObject = decode(body)
    return obj


_decode_small = lru_cache(maxsize=1024)(_decode_object)
