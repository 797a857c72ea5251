"""Kinds that the server answers and does not store: reviews of access and identity, and tokens.

They can only be created. The response is the object with its status.
"""

from __future__ import annotations

from typing import Annotated, Any

from datum_compute.api.membership import CELL_JOIN
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.objects import ApiObject, KindInfo

AUTHORIZATION, AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"


class ResourceAttributes(ApiStruct, frozen=True, kw_only=True):
    """A request for a resource."""

    namespace: Annotated[
        str, doc("Namespace of the request. Empty for all namespaces or a cluster-scoped resource.")
    ] = ""
    verb: Annotated[str, doc("Verb of the request, such as get or list. * means all verbs.")] = ""
    group: Annotated[str, doc("API group of the resource. * means all groups.")] = ""
    version: Annotated[str, doc("API version of the resource.")] = ""
    resource: Annotated[str, doc("Resource in the plural form. * means all resources.")] = ""
    subresource: Annotated[str, doc("Subresource of the request.")] = ""
    name: Annotated[str, doc("Name of the object. Empty for all objects.")] = ""
    field_selector: Annotated[
        dict[str, Any] | None,
        doc("Field selector of the request. It does not affect the decision."),
    ] = None
    label_selector: Annotated[
        dict[str, Any] | None,
        doc("Label selector of the request. It does not affect the decision."),
    ] = None


class NonResourceAttributes(ApiStruct, frozen=True, kw_only=True):
    """A request for a path that is not a resource."""

    path: Annotated[str, doc("Path of the request.")] = ""
    verb: Annotated[str, doc("HTTP method of the request, in lower case.")] = ""


class SelfAccessSpec(ApiStruct, frozen=True, kw_only=True):
    """The request to check. Exactly one field must be set."""

    resource_attributes: Annotated[ResourceAttributes | None, doc("Request for a resource.")] = None
    non_resource_attributes: Annotated[
        NonResourceAttributes | None, doc("Request for a path that is not a resource.")
    ] = None


class AccessSpec(ApiStruct, frozen=True, kw_only=True):
    """The request to check, and the user who would make it."""

    resource_attributes: Annotated[ResourceAttributes | None, doc("Request for a resource.")] = None
    non_resource_attributes: Annotated[
        NonResourceAttributes | None, doc("Request for a path that is not a resource.")
    ] = None
    user: Annotated[str, doc("Name of the user.")] = ""
    groups: Annotated[list[str], doc("Groups of the user.")] = []
    uid: Annotated[str, doc("UID of the user.")] = ""
    extra: Annotated[dict[str, list[str]], doc("Further attributes of the user.")] = {}


class RulesSpec(ApiStruct, frozen=True, kw_only=True):
    """The namespace to check."""

    namespace: Annotated[str, doc("Namespace in which the rules apply.")] = ""


class TokenReviewSpec(ApiStruct, frozen=True, kw_only=True):
    """The token to check."""

    token: Annotated[str, doc("Bearer token.")] = ""
    audiences: Annotated[
        list[str],
        doc(
            "Audiences of which the token must have at least one. Defaults to the "
            "audience of the server."
        ),
    ] = []


class BoundObject(ApiStruct, frozen=True, kw_only=True):
    """Object to which the token is bound."""

    kind: Annotated[str, doc("Kind of the object.")] = ""
    api_version: Annotated[str, doc("API version of the object.")] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    uid: Annotated[str, doc("UID of the object.")] = ""


class TokenRequestSpec(ApiStruct, frozen=True, kw_only=True):
    """The requested token."""

    audiences: Annotated[
        list[str], doc("Audiences of the token. Defaults to the audience of the server.")
    ] = []
    expiration_seconds: Annotated[
        int, doc("Requested lifetime of the token, in seconds. The server may issue a shorter one.")
    ] = 3600
    bound_object_ref: Annotated[
        BoundObject | None,
        doc("Object to which the token is bound. The token is invalid when the object is deleted."),
    ] = None


class SubjectAccessReview(ApiObject, frozen=True, kw_only=True):
    """A SubjectAccessReview checks whether a user or group can make a request."""

    spec: AccessSpec = AccessSpec()
    status: dict[str, Any] = {}


class SelfSubjectAccessReview(ApiObject, frozen=True, kw_only=True):
    """A SelfSubjectAccessReview checks whether the caller can make a request."""

    spec: SelfAccessSpec = SelfAccessSpec()
    status: dict[str, Any] = {}


class SelfSubjectRulesReview(ApiObject, frozen=True, kw_only=True):
    """A SelfSubjectRulesReview lists what the caller can do in a namespace."""

    spec: RulesSpec = RulesSpec()
    status: dict[str, Any] = {}


class SelfSubjectReview(ApiObject, frozen=True, kw_only=True):
    """A SelfSubjectReview returns the user name and groups of the caller."""

    status: dict[str, Any] = {}


class TokenReview(ApiObject, frozen=True, kw_only=True):
    """A TokenReview checks a bearer token and returns its user."""

    spec: TokenReviewSpec = TokenReviewSpec()
    status: dict[str, Any] = {}


class TokenRequest(ApiObject, frozen=True, kw_only=True):
    """A TokenRequest returns a token of a ServiceAccount."""

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
