"""A protobuf body: four bytes of magic, then a message that names the kind and holds the object."""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.api.errors import BadRequest, RequestEntityTooLarge, UnsupportedMediaType
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.encoding.protobuf import Field, Message, one, text
from datum_compute.server.encoding.protobuf_kinds import (
    CONFIG_MAP,
    CORE_EVENT,
    EVENT,
    LEASE,
    NAMESPACE,
    SCALE,
    SECRET,
    SERVICE_ACCOUNT,
)
from datum_compute.server.problems import shortened
from datum_compute.server.protobuf import rbac, reviews
from datum_compute.server.protobuf.metadata import DELETE_OPTIONS
from datum_compute.server.protobuf.wire import (
    FIELDS_MAX,
    LENGTH,
    TooManyFields,
    WireError,
    limit_fields,
)

MAGIC = b"k8s\x00"
_AUTHENTICATION, _AUTHORIZATION = "authentication.k8s.io/v1", "authorization.k8s.io/v1"
_RBAC = "rbac.authorization.k8s.io/v1"

KINDS: Mapping[tuple[str, str], Message] = {
    ("v1", "Namespace"): NAMESPACE,
    ("v1", "ConfigMap"): CONFIG_MAP,
    ("v1", "Secret"): SECRET,
    ("v1", "ServiceAccount"): SERVICE_ACCOUNT,
    ("v1", "Event"): CORE_EVENT,
    ("events.k8s.io/v1", "Event"): EVENT,
    ("coordination.k8s.io/v1", "Lease"): LEASE,
    ("autoscaling/v1", "Scale"): SCALE,
    (_RBAC, "Role"): rbac.ROLE,
    (_RBAC, "ClusterRole"): rbac.CLUSTER_ROLE,
    (_RBAC, "RoleBinding"): rbac.BINDING,
    (_RBAC, "ClusterRoleBinding"): rbac.BINDING,
    (_AUTHORIZATION, "SubjectAccessReview"): reviews.SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "LocalSubjectAccessReview"): reviews.SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "SelfSubjectAccessReview"): reviews.SELF_SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "SelfSubjectRulesReview"): reviews.SELF_SUBJECT_RULES_REVIEW,
    (_AUTHENTICATION, "SelfSubjectReview"): reviews.SELF_SUBJECT_REVIEW,
    (_AUTHENTICATION, "TokenReview"): reviews.TOKEN_REVIEW,
    (_AUTHENTICATION, "TokenRequest"): reviews.TOKEN_REQUEST,
}

_ENVELOPE = Message(
    {
        1: one("type", Message({1: text("apiVersion"), 2: text("kind")})),
        2: Field("raw", LENGTH, bytes),
        3: text("encoding"),
    }
)


def decoded_protobuf(body: bytes) -> JsonObject:
    """The JSON object of a body; 400 when it cannot be read, 415 for a kind without a table."""
    if not body.startswith(MAGIC):
        raise BadRequest("the body is not Kubernetes protobuf: it must begin with 'k8s' and a zero")
    try:
        with limit_fields():
            return _read_envelope(body[len(MAGIC) :])
    except WireError as error:
        raise BadRequest(f"the body is not valid protobuf: {error}") from error
    except TooManyFields as error:
        raise RequestEntityTooLarge(
            f"the document has more than {FIELDS_MAX} fields; split it into several objects"
        ) from error


def _read_envelope(body: bytes) -> JsonObject:
    envelope = _ENVELOPE.read(body)
    if envelope.get("encoding"):
        raise UnsupportedMediaType("a protobuf body with a content encoding is not supported")
    named = envelope.get("type", {})
    message = _message_of(named.get("apiVersion", ""), named.get("kind", ""))
    return {**named, **message.read(envelope.get("raw", b""))}


def _message_of(api_version: str, kind: str) -> Message:
    if kind == "DeleteOptions":  # any group may carry it
        return DELETE_OPTIONS
    found = KINDS.get((api_version, kind))
    if found is None:
        shown = shortened(f"{kind or 'an object without kind'} of {api_version or 'no version'}")
        raise UnsupportedMediaType(
            f"protobuf is supported for built-in kinds only, not for {shown}: send application/json"
        )
    return found
