"""AdmissionReview (admission.k8s.io/v1): the request of an API server, and the response.

The functions are pure and convert between JSON values and ``Review``. A review that cannot be
decoded is a BadRequest; the API server then applies the failure policy of its configuration.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from datum_compute.api.errors import ApiError, BadRequest, to_status
from datum_compute.api.meta.codec import ApiStruct, DecodeError, JsonObject, encode, from_json
from datum_compute.api.meta.json_patch import json_patch

API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
_WARNINGS_MAX, _WARNING_LENGTH_MAX = 16, 256  # API servers truncate longer warnings


@dataclass(frozen=True, slots=True)
class Requester:
    """The user of the write, as the API server authenticated it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class _Resource(ApiStruct, frozen=True, kw_only=True):
    group: str = ""
    version: str
    resource: str


class _UserInfo(ApiStruct, frozen=True, kw_only=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = ()
    extra: dict[str, tuple[str, ...]] | None = {}


class Review(ApiStruct, frozen=True, kw_only=True):
    """One request of an API server."""

    uid: str
    resource: _Resource
    sub_resource: str = ""
    name: str = ""
    namespace: str = ""
    operation: str
    user_info: _UserInfo
    object: JsonObject | None = None
    old_object: JsonObject | None = None

    @property
    def requester(self) -> Requester:
        user = self.user_info
        return Requester(user.username, user.uid, user.groups or (), user.extra or {})

    @property
    def is_write(self) -> bool:
        """Create or update of an object. There are no rules for subresources."""
        return self.operation in (CREATE, UPDATE) and not self.sub_resource

    @property
    def is_deletion(self) -> bool:
        return self.operation == DELETE and not self.sub_resource


def decode_review(body: JsonObject) -> Review:
    if (body.get("apiVersion"), body.get("kind")) != (API_VERSION, KIND):
        raise BadRequest(f"the body must be an {KIND} of {API_VERSION}")
    request = body.get("request")
    if not isinstance(request, dict):
        raise BadRequest(f"the {KIND} has no request")
    try:
        review = from_json(request, Review)
    except DecodeError as error:
        raise BadRequest(f"the request of the {KIND} cannot be read: {error}") from error
    if not review.uid:
        raise BadRequest(f"the request of the {KIND} has no uid")
    if review.is_write and review.object is None:
        raise BadRequest(f"the {KIND} is about a {review.operation} and has no object")
    if review.operation == UPDATE and review.is_write and review.old_object is None:
        raise BadRequest(f"the {KIND} is about an {UPDATE} and has no oldObject")
    return review


def allow(review: Review, warnings: Sequence[str] = ()) -> JsonObject:
    return _respond(review, {"allowed": True}, warnings)


def allow_with_patch(review: Review, after: JsonObject) -> JsonObject:
    """Allow the write, with a patch from the object to ``after``."""
    operations = json_patch(review.object, after)
    if not operations:
        return allow(review)
    patch = base64.b64encode(encode(operations)).decode()
    return _respond(review, {"allowed": True, "patchType": "JSONPatch", "patch": patch}, ())


def deny(review: Review, error: ApiError, warnings: Sequence[str] = ()) -> JsonObject:
    return _respond(review, {"allowed": False, "status": to_status(error)}, warnings)


def _respond(review: Review, result: JsonObject, warnings: Sequence[str]) -> JsonObject:
    response: JsonObject = {"uid": review.uid, **result}
    if warnings:
        response["warnings"] = [text[:_WARNING_LENGTH_MAX] for text in warnings[:_WARNINGS_MAX]]
    return {"apiVersion": API_VERSION, "kind": KIND, "response": response}
