"""Answers to the questions of rules over clients: SubjectAccessReviews and lists.

The rights are those of the user behind the write: name, uid, groups and extra claims are passed on
as the API server gave them. All questions are asked at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from datum_compute.admission.questions import Answers, Listing, May, Question
from datum_compute.admission.review import Requester
from datum_compute.api.errors import NotFound
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.reviews import SUBJECT_ACCESS_REVIEW
from datum_compute.client.client import Client


@dataclass(frozen=True, slots=True)
class ClientLookups:
    """``plane`` is the one that is written to; ``platform`` has the catalogue, where there is a
    platform plane."""

    plane: Client
    platform: Client | None = None

    async def answers(self, requester: Requester, questions: Sequence[Question]) -> Answers:
        rights = [question for question in questions if isinstance(question, May)]
        listings = [question for question in questions if isinstance(question, Listing)]
        allowed, listed = await asyncio.gather(
            asyncio.gather(*(self._may(requester, right) for right in rights)),
            asyncio.gather(*(self._listed(listing) for listing in listings)),
        )
        return Answers(
            allowed=dict(zip(rights, allowed, strict=True)),
            listed=dict(zip(listings, listed, strict=True)),
        )

    async def _may(self, requester: Requester, right: May) -> bool:
        review = access_review(requester, right)
        answer = await self.plane.create_plain(SUBJECT_ACCESS_REVIEW, review)
        status = answer.get("status") or {}
        return status.get("allowed") is True and status.get("denied") is not True

    async def _listed(self, listing: Listing) -> list[JsonObject]:
        by_platform = self.platform if listing.catalogue else None
        kept = await _all(by_platform, listing) if by_platform is not None else []
        return kept or await _all(self.plane, listing)


async def _all(client: Client, listing: Listing) -> list[JsonObject]:
    """None of a kind that the plane does not serve."""
    try:
        return (await client.list_plain(listing.kind)).items
    except NotFound:
        return []


def access_review(requester: Requester, right: May) -> JsonObject:
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
