"""Kinds that are answered and never stored: reviews of access and identity, requests for tokens.

They can only be created, and the answer is the object with its status.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.membership import CELL_JOIN
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.objects import ApiObject, KindInfo

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"


class ResourceAttributes(ApiStruct, frozen=True, kw_only=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: dict[str, Any] | None = None  # roles do not look at selectors
    label_selector: dict[str, Any] | None = None


class NonResourceAttributes(ApiStruct, frozen=True, kw_only=True):
    path: str = ""
    verb: str = ""


class SelfAccessSpec(ApiStruct, frozen=True, kw_only=True):
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class AccessSpec(ApiStruct, frozen=True, kw_only=True):
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: list[str] = []
    uid: str = ""
    extra: dict[str, list[str]] = {}


class RulesSpec(ApiStruct, frozen=True, kw_only=True):
    namespace: str = ""


class TokenReviewSpec(ApiStruct, frozen=True, kw_only=True):
    token: str = ""
    audiences: list[str] = []


class BoundObject(ApiStruct, frozen=True, kw_only=True):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class TokenRequestSpec(ApiStruct, frozen=True, kw_only=True):
    audiences: list[str] = []
    expiration_seconds: int = 3600
    bound_object_ref: BoundObject | None = None


class SubjectAccessReview(ApiObject, frozen=True, kw_only=True):
    spec: AccessSpec = AccessSpec()
    status: dict[str, Any] = {}


class SelfSubjectAccessReview(ApiObject, frozen=True, kw_only=True):
    spec: SelfAccessSpec = SelfAccessSpec()
    status: dict[str, Any] = {}


class SelfSubjectRulesReview(ApiObject, frozen=True, kw_only=True):
    spec: RulesSpec = RulesSpec()
    status: dict[str, Any] = {}


class SelfSubjectReview(ApiObject, frozen=True, kw_only=True):
    status: dict[str, Any] = {}


class TokenReview(ApiObject, frozen=True, kw_only=True):
    spec: TokenReviewSpec = TokenReviewSpec()
    status: dict[str, Any] = {}


class TokenRequest(ApiObject, frozen=True, kw_only=True):
    spec: TokenRequestSpec = TokenRequestSpec()
    status: dict[str, Any] = {}


def _review(
    group: str, model: type[ApiObject], *, name: str = "", namespaced: bool = False
) -> KindInfo[Any]:
    kind = name or model.__name__
    return KindInfo(
        group=group,
        version="v1",
        kind=kind,
        plural=f"{kind.lower()}s",
        model=model,
        namespaced=namespaced,
        has_status=False,
        built_in=True,
    )


SUBJECT_ACCESS_REVIEW = _review(AUTHORIZATION, SubjectAccessReview)
LOCAL_ACCESS_REVIEW = _review(
    AUTHORIZATION, SubjectAccessReview, name="LocalSubjectAccessReview", namespaced=True
)
SELF_ACCESS_REVIEW = _review(AUTHORIZATION, SelfSubjectAccessReview)
SELF_RULES_REVIEW = _review(AUTHORIZATION, SelfSubjectRulesReview)
SELF_REVIEW = _review(AUTHENTICATION, SelfSubjectReview)
TOKEN_REVIEW = _review(AUTHENTICATION, TokenReview)
# Served as the subresource ``token`` of a service account.
TOKEN_REQUEST = _review(AUTHENTICATION, TokenRequest, namespaced=True)

REVIEWS = (
    SUBJECT_ACCESS_REVIEW,
    LOCAL_ACCESS_REVIEW,
    SELF_ACCESS_REVIEW,
    SELF_RULES_REVIEW,
    SELF_REVIEW,
    TOKEN_REVIEW,
    CELL_JOIN,
)
