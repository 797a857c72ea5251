"""The rules as a webhook runs them: on an AdmissionReview, with questions answered over a client.

Rules kept here: an object is checked by its schema first, since the rules rely on the shape that
promises; an object of which only metadata or status changed is left alone, except for who may do
that; when a question cannot be answered the write is refused and may be tried again, never waved
through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from datum_compute.admission.chain import CHAIN, defaulted, faults
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
from datum_compute.admission.review import Requester, Review, allowed, mutated, refused
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
from datum_compute.api.schema.validate import Check, Report, compile_check, object_schema
from datum_compute.client.client import Client

# --- Which kinds a webhook is asked about, read off the tables of rules: ours, where they have any
# Kinds of Kubernetes and of Karmada have their own rules there. The manifests in ``deploy/webhook``
# are made from this (``hack/webhook_manifests.py``).


def validated_kinds() -> tuple[KindInfo[Any], ...]:
    return tuple(k for k in _own_kinds() if k.resource in CHAIN or k.resource in CONTEXT_RULES)


def removal_is_asked_about(kind: KindInfo[Any]) -> bool:
    return kind.resource in REMOVING


def mutated_kinds() -> tuple[KindInfo[Any], ...]:
    return tuple(k for k in _own_kinds() if k.resource in CHAIN and CHAIN[k.resource].defaults)


def hooked_kind(group: str, version: str, plural: str) -> KindInfo[Any] | None:
    place = (group, version, plural)
    found = (k for k in validated_kinds() if (k.group, k.version, k.plural) == place)
    return next(found, None)


def _own_kinds() -> list[KindInfo[Any]]:
    return [kind for kind in KINDS if not (kind.built_in or kind.partial)]


# --- webhook


# Well within the ten seconds that an API server waits (deploy/webhook).
PATIENCE_S = 6.0
RETRY_S = 1

Ask = Callable[[Requester, Sequence[Question]], Coroutine[Any, Any, Answers]]


@dataclass(frozen=True, slots=True)
class Webhook:
    """``ask`` answers for a user of the plane that the review is about."""

    ask: Ask
    unix_s: Callable[[], float]
    deprecation_grace_s: float = DEPRECATION_GRACE_S

    def mutate(self, review: Review) -> JsonObject:
        """What the API server will refuse anyway stays as it is: it says what is wrong."""
        kind = _kind_of(review)
        if kind is None or review.object is None:
            return allowed(review)
        report = Report()
        _check_of(kind)(review.object, "", report)
        if report.errors:
            return allowed(review)
        old, user = review.old_object, review.requester.name
        return mutated(review, with_author(kind, defaulted(kind, review.object, old), old, user))

    async def validate(self, review: Review) -> JsonObject:
        if review.is_removal:
            return await self._removal(review)
        kind = _kind_of(review)
        if kind is None or review.object is None:
            return allowed(review)
        write, causes = self._checked(kind, review, review.object)
        warnings: tuple[str, ...] = ()
        if not causes:
            try:
                answers = await self._answers(review.requester, questions_of(write))
            except (ApiError, Unreachable, TimeoutError) as error:
                return refused(review, _unanswered(error))
            found = evaluate(write, answers)
            causes, warnings = list(found.causes), found.warnings
        if causes:
            name = review.name or str(write.new["metadata"].get("name", ""))
            return refused(review, invalid(kind, name, causes), warnings)
        return allowed(review, warnings)

    def _checked(
        self, kind: KindInfo[Any], review: Review, sent: JsonObject
    ) -> tuple[Write, list[Cause]]:
        """The write as rules may rely on it, and what is wrong without asking anybody."""
        new, old = _with_metadata(sent), review.old_object
        causes: list[Cause] = []
        if old is not None and _main(new) == _main(old):
            old = _with_metadata(old)
        else:
            old = _understood(kind, old)
            new, causes = _shaped(kind, new)
            causes = causes or faults(kind, new, old)
        write = Write(
            kind,
            review.namespace,
            new,
            old,
            now_s=self.unix_s(),
            deprecation_grace_s=self.deprecation_grace_s,
        )
        return write, causes

    async def _removal(self, review: Review) -> JsonObject:
        kind, old = _hooked(review), review.old_object
        understood = _understood(kind, old) if kind is not None else None
        if kind is None or understood is None:
            return allowed(review)  # also what another release wrote: it may always go
        removal = Removal(kind, review.namespace, understood)
        try:
            answers = await self._answers(review.requester, questions_before(removal))
        except (ApiError, Unreachable, TimeoutError) as error:
            return refused(review, _unanswered(error))
        causes = objections(removal, answers)
        return refused(review, invalid(kind, review.name, causes)) if causes else allowed(review)

    async def _answers(self, requester: Requester, questions: Sequence[Question]) -> Answers:
        if not questions:
            return Answers()
        # In a task of its own: a port may begin requests outside of any.
        return await asyncio.wait_for(self.ask(requester, questions), PATIENCE_S)


def _kind_of(review: Review) -> KindInfo[Any] | None:
    return _hooked(review) if review.is_write else None


def _hooked(review: Review) -> KindInfo[Any] | None:
    resource = review.resource
    return hooked_kind(resource.group, resource.version, resource.resource)


def _shaped(kind: KindInfo[Any], obj: JsonObject) -> tuple[JsonObject, list[Cause]]:
    """The object pruned and with its defaults, or what its schema says against it."""
    report = Report()
    checked: JsonObject = _check_of(kind)(_main(obj), "", report)
    return {**checked, "metadata": obj["metadata"], **_status(obj)}, report.errors


def _understood(kind: KindInfo[Any], old: JsonObject | None) -> JsonObject | None:
    """What was there before. If another release wrote what cannot be understood here, all of the
    new object counts as new."""
    if old is None:
        return None
    shaped, causes = _shaped(kind, _with_metadata(old))
    return None if causes else shaped


@cache
def _check_of(kind: KindInfo[Any]) -> Check:
    """Of everything but the status, which has rules and rights of its own."""
    whole = object_schema(structural_schema(kind))
    fields = {name: schema for name, schema in whole["properties"].items() if name != "status"}
    required = [name for name in whole.get("required", ()) if name != "status"]
    return compile_check({**whole, "properties": fields, "required": required})


def _main(obj: JsonObject) -> JsonObject:
    return {name: part for name, part in obj.items() if name not in ("metadata", "status")}


def _status(obj: JsonObject) -> JsonObject:
    return {"status": obj["status"]} if isinstance(obj.get("status"), dict) else {}


def _with_metadata(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    return {**obj, "metadata": metadata if isinstance(metadata, dict) else {}}


def _unanswered(error: Exception) -> ApiError:
    """Nothing is wrong with the object as far as anybody knows; the same write may pass soon."""
    if isinstance(error, BadRequest):
        return error  # of whoever configured the webhook; trying again does not help
    why = str(error) or "it took too long"
    message = f"what this object refers to cannot be checked now ({why}); try again"
    return ServiceUnavailable(message, retry_after_s=RETRY_S)


# --- Answers to the questions of rules over clients: SubjectAccessReviews and lists
# The rights are those of the user behind the write: name, uid, groups and extra claims are passed
# on as the API server gave them. All questions are asked at once.


@dataclass(frozen=True, slots=True)
class ClientLookups:
    """``plane`` is the one that is written to; ``platform`` has the catalogue, where there is a
    platform plane."""

    plane: Client
    platform: Client | None = None

    async def answers(self, requester: Requester, questions: Sequence[Question]) -> Answers:
        rights = [question for question in questions if isinstance(question, AccessQuery)]
        listings = [question for question in questions if isinstance(question, ListQuery)]
        allowed, listed = await asyncio.gather(
            asyncio.gather(*(self._may(requester, right) for right in rights)),
            asyncio.gather(*(self._listed(listing) for listing in listings)),
        )
        return Answers(
            allowed=dict(zip(rights, allowed, strict=True)),
            listed=dict(zip(listings, listed, strict=True)),
        )

    async def _may(self, requester: Requester, right: AccessQuery) -> bool:
        review = access_review(requester, right)
        answer = await self.plane.create_plain(SUBJECT_ACCESS_REVIEW, review)
        status = answer.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True

    async def _listed(self, listing: ListQuery) -> list[JsonObject]:
        by_platform = self.platform if listing.catalogue else None
        kept = await _all(by_platform, listing) if by_platform is not None else []
        return kept or await _all(self.plane, listing)


async def _all(client: Client, listing: ListQuery) -> list[JsonObject]:
    """None of a kind that the plane does not serve."""
    try:
        return (await client.list_plain(listing.kind)).items
    except NotFound:
        return []


def access_review(requester: Requester, right: AccessQuery) -> JsonObject:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "namespace": right.namespace,
        "name": right.name,
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
