"""Admission webhook: runs the rules on an AdmissionReview. A client answers their queries.

The schema is checked first, because the rules rely on its types. If only metadata or status
changed, only the rules about permissions run. If a query cannot be answered, the write is denied
with an error that allows a retry.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from datum_compute.admission.chain import CHAIN, apply_defaults, find_errors
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
from datum_compute.admission.review import Requester, Review, allow, allow_with_patch, deny
from datum_compute.admission.rules.controller_owned import with_author
from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    NotFound,
    ServiceUnavailable,
    Unreachable,
)
from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.reviews import SUBJECT_ACCESS_REVIEW
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import Check, ValidationReport, compile_check, object_schema
from datum_compute.client.client import Client

# --- The kinds of the webhook: kinds of the platform that have rules
# API servers and Karmada validate their own kinds. ``hack/webhook_manifests.py`` generates the
# manifests in ``deploy/webhook`` from these functions.


def validated_kinds() -> tuple[KindInfo[Any], ...]:
    return tuple(k for k in _own_kinds() if k.resource in CHAIN or k.resource in CONTEXT_RULES)


def has_deletion_rules(kind: KindInfo[Any]) -> bool:
    return kind.resource in DELETION_RULES


def mutated_kinds() -> tuple[KindInfo[Any], ...]:
    return tuple(k for k in _own_kinds() if k.resource in CHAIN and CHAIN[k.resource].defaults)


def find_validated_kind(group: str, version: str, plural: str) -> KindInfo[Any] | None:
    resource = (group, version, plural)
    found = (k for k in validated_kinds() if (k.group, k.version, k.plural) == resource)
    return next(found, None)


def _own_kinds() -> list[KindInfo[Any]]:
    return [kind for kind in KINDS if not (kind.built_in or kind.partial)]


# --- Webhook


# Shorter than the timeout of API servers, which is 10 s (deploy/webhook).
ANSWER_TIMEOUT_S = 6.0
RETRY_AFTER_S = 1

AnswerQueries = Callable[[Requester, Sequence[Query]], Coroutine[Any, Any, Answers]]


@dataclass(frozen=True, slots=True)
class Webhook:
    """``answer_queries`` answers queries about a user and the plane of the review."""

    answer_queries: AnswerQueries
    unix_s: Callable[[], float]
    deprecation_grace_s: float = DEPRECATION_GRACE_S

    def mutate(self, review: Review) -> JsonObject:
        """Apply the defaults. An object with schema errors is left to the API server, which
        refuses it."""
        kind = _kind_of(review)
        if kind is None or review.object is None:
            return allow(review)
        report = ValidationReport()
        _compile_kind_check(kind)(review.object, "", report)
        if report.errors:
            return allow(review)
        old, user = review.old_object, review.requester.name
        return allow_with_patch(
            review, with_author(kind, apply_defaults(kind, review.object, old), old, user)
        )

    async def validate(self, review: Review) -> JsonObject:
        if review.is_deletion:
            return await self._validate_deletion(review)
        kind = _kind_of(review)
        if kind is None or review.object is None:
            return allow(review)
        write, causes = self._check_object(kind, review, review.object)
        warnings: tuple[str, ...] = ()
        if not causes:
            try:
                answers = await self._answer(review.requester, queries_of_write(write))
            except (ApiError, Unreachable, TimeoutError) as error:
                return deny(review, _lookup_error(error))
            found = evaluate(write, answers)
            causes, warnings = list(found.causes), found.warnings
        if causes:
            name = review.name or str(write.new["metadata"].get("name", ""))
            return deny(review, invalid(kind, name, causes), warnings)
        return allow(review, warnings)

    def _check_object(
        self, kind: KindInfo[Any], review: Review, sent: JsonObject
    ) -> tuple[Write, list[Cause]]:
        """Return the write with defaults, and the errors that do not depend on queries."""
        new, old = _with_metadata(sent), review.old_object
        causes: list[Cause] = []
        if old is not None and _content(new) == _content(old):
            old = _with_metadata(old)
        else:
            old = _decode_old(kind, old)
            new, causes = _apply_schema(kind, new)
            causes = causes or find_errors(kind, new, old)
        write = Write(
            kind,
            review.namespace,
            new,
            old,
            now_s=self.unix_s(),
            deprecation_grace_s=self.deprecation_grace_s,
        )
        return write, causes

    async def _validate_deletion(self, review: Review) -> JsonObject:
        kind = _find_kind(review)
        old = _decode_old(kind, review.old_object) if kind is not None else None
        if kind is None or old is None:
            return allow(review)  # an invalid object of another release can be deleted
        deletion = Deletion(kind, review.namespace, old)
        try:
            answers = await self._answer(review.requester, queries_of_deletion(deletion))
        except (ApiError, Unreachable, TimeoutError) as error:
            return deny(review, _lookup_error(error))
        causes = evaluate_deletion(deletion, answers)
        return deny(review, invalid(kind, review.name, causes)) if causes else allow(review)

    async def _answer(self, requester: Requester, queries: Sequence[Query]) -> Answers:
        if not queries:
            return Answers()
        # The HTTP server can start a request outside of a task, and ``asyncio.timeout`` needs one;
        # ``wait_for`` creates it.
        return await asyncio.wait_for(self.answer_queries(requester, queries), ANSWER_TIMEOUT_S)


def _kind_of(review: Review) -> KindInfo[Any] | None:
    return _find_kind(review) if review.is_write else None


def _find_kind(review: Review) -> KindInfo[Any] | None:
    resource = review.resource
    return find_validated_kind(resource.group, resource.version, resource.resource)


def _apply_schema(kind: KindInfo[Any], obj: JsonObject) -> tuple[JsonObject, list[Cause]]:
    """Return the object, pruned and with the defaults of its schema, and its schema errors."""
    report = ValidationReport()
    checked: JsonObject = _compile_kind_check(kind)(_content(obj), "", report)
    return {**checked, "metadata": obj["metadata"], **_status(obj)}, report.errors


def _decode_old(kind: KindInfo[Any], old: JsonObject | None) -> JsonObject | None:
    """Return the stored object, or None if it is invalid, such as one of another release.

    All fields of the new object count as new then.
    """
    if old is None:
        return None
    decoded, causes = _apply_schema(kind, _with_metadata(old))
    return None if causes else decoded


@cache
def _compile_kind_check(kind: KindInfo[Any]) -> Check:
    """Return the schema check without the status, which is a subresource."""
    whole = object_schema(structural_schema(kind))
    fields = {name: schema for name, schema in whole["properties"].items() if name != "status"}
    required = [name for name in whole.get("required", ()) if name != "status"]
    return compile_check({**whole, "properties": fields, "required": required})


def _content(obj: JsonObject) -> JsonObject:
    return {name: part for name, part in obj.items() if name not in ("metadata", "status")}


def _status(obj: JsonObject) -> JsonObject:
    return {"status": obj["status"]} if isinstance(obj.get("status"), dict) else {}


def _with_metadata(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    return {**obj, "metadata": metadata if isinstance(metadata, dict) else {}}


def _lookup_error(error: Exception) -> ApiError:
    """Return the error for a write whose queries could not be answered. A retry may succeed."""
    if isinstance(error, BadRequest):
        return error  # the webhook is misconfigured; a retry does not help
    why = str(error) or "it took too long"
    message = f"what this object refers to cannot be checked now ({why}); try again"
    return ServiceUnavailable(message, retry_after_s=RETRY_AFTER_S)


# --- Answers from clients: SubjectAccessReviews and lists
# A SubjectAccessReview contains name, uid, groups and extra claims of the user as the API server
# sent them. All queries run concurrently.


@dataclass(frozen=True, slots=True)
class ClientLookups:
    """``plane`` is the plane of the write. ``platform`` has the catalogue, if it exists."""

    plane: Client
    platform: Client | None = None

    async def answer(self, requester: Requester, queries: Sequence[Query]) -> Answers:
        access = [query for query in queries if isinstance(query, AccessQuery)]
        lists = [query for query in queries if isinstance(query, ListQuery)]
        allowed, listed = await asyncio.gather(
            asyncio.gather(*(self._is_allowed(requester, query) for query in access)),
            asyncio.gather(*(self._list(query) for query in lists)),
        )
        return Answers(
            allowed=dict(zip(access, allowed, strict=True)),
            listed=dict(zip(lists, listed, strict=True)),
        )

    async def _is_allowed(self, requester: Requester, query: AccessQuery) -> bool:
        review = access_review(requester, query)
        reviewed = await self.plane.create_plain(SUBJECT_ACCESS_REVIEW, review)
        status = reviewed.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True

    async def _list(self, query: ListQuery) -> list[JsonObject]:
        catalogue = self.platform if query.catalogue else None
        objects = await _list_all(catalogue, query) if catalogue is not None else []
        return objects or await _list_all(self.plane, query)


async def _list_all(client: Client, query: ListQuery) -> list[JsonObject]:
    """Return an empty list if the plane does not serve the kind."""
    try:
        return (await client.list_plain(query.kind)).items
    except NotFound:
        return []


def access_review(requester: Requester, query: AccessQuery) -> JsonObject:
    attributes = {
        "verb": query.verb,
        "group": query.group,
        "resource": query.resource,
        "namespace": query.namespace,
        "name": query.name,
    }
    spec: JsonObject = {
        "user": requester.name,
        "uid": requester.uid,
        "groups": list(requester.groups),
        "extra": {key: list(values) for key, values in requester.extra.items()},
        "resourceAttributes": {name: value for name, value in attributes.items() if value},
    }
    kind = SUBJECT_ACCESS_REVIEW
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {},
        "spec": {name: value for name, value in spec.items() if value},
    }
