"""Admission that must know more than the object, answered from the store: nothing is awaited."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
from msgspec.structs import replace

from datum_compute.admission.context_rules import (
    CONTEXT_RULES,
    REMOVING,
    evaluate,
    objections,
    questions_before,
    questions_of,
)
from datum_compute.admission.findings import invalid
from datum_compute.admission.questions import (
    AccessQuery,
    Answers,
    ListQuery,
    Question,
    Removal,
    Write,
)
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.context import ServerContext
from datum_compute.server.routing import ApiRequest
from datum_compute.server.verbs.prepare import PreparedObject
from datum_compute.store.store import Store

_CACHED_BYTES_MAX = 16 * 1024  # of one object


class StoreAdmissionReader(msgspec.Struct, frozen=True):
    """Answers for one request: what its plane holds, and what its user may do there."""

    context: ServerContext
    request: ApiRequest

    def answers(self, questions: Iterable[Question]) -> Answers:
        asked = tuple(questions)
        return Answers(
            allowed={q: self._may(q) for q in asked if isinstance(q, AccessQuery)},
            listed={q: self._listed(q) for q in asked if isinstance(q, ListQuery)},
        )

    def _may(self, right: AccessQuery) -> bool:
        wanted = Attributes(
            right.verb, right.group, right.resource, "", right.namespace, right.name
        )
        return self.context.authorizer.allows(self.request.user, self.request.plane, wanted)

    def _listed(self, listing: ListQuery) -> list[JsonObject]:
        store = self.context.store
        kept: list[JsonObject] = []
        if listing.catalogue and store.has_plane(PLATFORM):
            kept = _objects(store, PLATFORM, listing.kind)
        return kept or _objects(store, self.request.plane, listing.kind)


def apply_context_rules(
    context: ServerContext, request: ApiRequest, proposal: PreparedObject, old: JsonObject | None
) -> PreparedObject:
    """The proposal with what the reading rules found; asked only of what has no fault yet."""
    if request.kind.resource not in CONTEXT_RULES or proposal.causes or request.route.subresource:
        return proposal
    write = Write(
        request.kind,
        request.route.namespace,
        proposal.obj,
        old,
        now_s=context.clock(),
        deprecation_grace_s=context.deprecation_grace_s,
    )
    found = evaluate(write, StoreAdmissionReader(context, request).answers(questions_of(write)))
    if not found.causes and not found.warnings:
        return proposal
    return replace(proposal, causes=found.causes, warnings=found.warnings)


def check_removal(context: ServerContext, request: ApiRequest, old: JsonObject) -> None:
    """Raise if the object may not go yet."""
    if request.kind.resource not in REMOVING:
        return
    removal = Removal(request.kind, request.route.namespace, old)
    answers = StoreAdmissionReader(context, request).answers(questions_before(removal))
    causes = objections(removal, answers)
    if causes:
        raise invalid(request.kind, old["metadata"]["name"], causes)


def _objects(store: Store, plane: PlaneName, kind: KindInfo[Any]) -> list[JsonObject]:
    return [
        decode_cached(record.body) for record in store.snapshot(plane, kind.storage, None).records
    ]


def decode_cached(body: bytes) -> JsonObject:
    """Decode an object that rules only read, such as an instance type. Cache it for the next write,
    unless it is large."""
    return _decode_small(body) if len(body) <= _CACHED_BYTES_MAX else _decode_object(body)


def _decode_object(body: bytes) -> JsonObject:
    found: JsonObject = decode(body)
    return found


_decode_small = lru_cache(maxsize=1024)(_decode_object)
