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

from datum_compute.admission.authorship import with_author
from datum_compute.admission.chain import defaulted, faults
from datum_compute.admission.context_rules import judged, questions_of
from datum_compute.admission.grace import DEPRECATION_GRACE_S
from datum_compute.admission.hookedkinds import hooked_kind
from datum_compute.admission.questions import Answers, Question, Removal, Write
from datum_compute.admission.refusal import invalid
from datum_compute.admission.removing import objections, questions_before
from datum_compute.admission.review import Requester, Review, allowed, mutated, refused
from datum_compute.api.errors import ApiError, BadRequest, Cause, ServiceUnavailable, Unreachable
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import Check, Report, compiled, whole_object

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
            found = judged(write, answers)
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
    whole = whole_object(structural_schema(kind))
    fields = {name: schema for name, schema in whole["properties"].items() if name != "status"}
    required = [name for name in whole.get("required", ()) if name != "status"]
    return compiled({**whole, "properties": fields, "required": required})


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
