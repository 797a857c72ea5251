"""Protobuf tables of the core kinds, Event of events.k8s.io, Lease and Scale."""

from __future__ import annotations

from collections.abc import Mapping

from datum_compute.api.errors import (
    BadRequest,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    shorten,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.encoding.protobuf import (
    FIELDS_MAX,
    LENGTH,
    Field,
    Message,
    TooManyFields,
    WireError,
    data_map,
    flag,
    json_text,
    limit_fields,
    many,
    micro_time,
    number,
    one,
    text,
    text_map,
    texts,
    texts_map,
    time,
)

# --- Messages that several kinds contain: metadata, owners, selectors, conditions, delete options


_OWNER_REFERENCE = Message(
    {
        1: text("kind"),
        3: text("name"),
        4: text("uid"),
        5: text("apiVersion"),
        6: flag("controller", optional=True),
        7: flag("blockOwnerDeletion", optional=True),
    }
)

_MANAGED_FIELDS = Message(
    {
        1: text("manager"),
        2: text("operation"),
        3: text("apiVersion"),
        4: time("time"),
        6: text("fieldsType"),
        7: json_text("fieldsV1"),
        8: text("subresource"),
    }
)

OBJECT_META = Message(
    {
        1: text("name"),
        2: text("generateName"),
        3: text("namespace"),
        4: text("selfLink"),
        5: text("uid"),
        6: text("resourceVersion"),
        7: number("generation"),
        8: time("creationTimestamp"),
        9: time("deletionTimestamp"),
        10: number("deletionGracePeriodSeconds", optional=True),
        11: text_map("labels"),
        12: text_map("annotations"),
        13: many("ownerReferences", _OWNER_REFERENCE),
        14: texts("finalizers"),
        17: many("managedFields", _MANAGED_FIELDS),
    }
)

_REQUIREMENT = Message({1: text("key"), 2: text("operator"), 3: texts("values")})

LABEL_SELECTOR = Message({1: text_map("matchLabels"), 2: many("matchExpressions", _REQUIREMENT)})

# Selectors of an access review: as text, or taken apart.
SELECTOR_ATTRIBUTES = Message({1: text("rawSelector"), 2: many("requirements", _REQUIREMENT)})

_PRECONDITIONS = Message({1: text("uid", optional=True), 2: text("resourceVersion", optional=True)})

DELETE_OPTIONS = Message(
    {
        1: number("gracePeriodSeconds", optional=True),
        2: one("preconditions", _PRECONDITIONS, optional=True),
        3: flag("orphanDependents", optional=True),
        4: text("propagationPolicy", optional=True),
        5: texts("dryRun"),
        6: flag("ignoreStoreReadErrorWithClusterBreakingPotential", optional=True),
    }
)


def kind_message(fields: Mapping[int, Field]) -> Message:
    """A kind: its metadata and its own fields."""
    return Message({1: one("metadata", OBJECT_META), **fields})


# --- core


_NAMESPACE_CONDITION = Message(
    {
        1: text("type"),
        2: text("status"),
        4: time("lastTransitionTime"),
        5: text("reason"),
        6: text("message"),
    }
)
_NAMESPACE_SPEC = Message({1: texts("finalizers")})
_NAMESPACE_STATUS = Message({1: text("phase"), 2: many("conditions", _NAMESPACE_CONDITION)})

NAMESPACE = kind_message({2: one("spec", _NAMESPACE_SPEC), 3: one("status", _NAMESPACE_STATUS)})

CONFIG_MAP = kind_message(
    {2: text_map("data"), 3: data_map("binaryData"), 4: flag("immutable", optional=True)}
)

SECRET = kind_message(
    {
        2: data_map("data"),
        3: text("type"),
        4: text_map("stringData"),
        5: flag("immutable", optional=True),
    }
)

_OBJECT_REFERENCE = Message(
    {
        1: text("kind"),
        2: text("namespace"),
        3: text("name"),
        4: text("uid"),
        5: text("apiVersion"),
        6: text("resourceVersion"),
        7: text("fieldPath"),
    }
)

SERVICE_ACCOUNT = kind_message(
    {
        2: many("secrets", _OBJECT_REFERENCE),
        3: many("imagePullSecrets", Message({1: text("name")})),
        4: flag("automountServiceAccountToken", optional=True),
    }
)

_EVENT_SERIES = Message({1: number("count"), 2: micro_time("lastObservedTime")})
_EVENT_SOURCE = Message({1: text("component"), 2: text("host")})

CORE_EVENT = kind_message(
    {
        2: one("involvedObject", _OBJECT_REFERENCE),
        3: text("reason"),
        4: text("message"),
        5: one("source", _EVENT_SOURCE),
        6: time("firstTimestamp"),
        7: time("lastTimestamp"),
        8: number("count"),
        9: text("type"),
        10: micro_time("eventTime"),
        11: one("series", _EVENT_SERIES, optional=True),
        12: text("action"),
        13: one("related", _OBJECT_REFERENCE, optional=True),
        14: text("reportingComponent"),
        15: text("reportingInstance"),
    }
)

EVENT = kind_message(
    {
        2: micro_time("eventTime"),
        3: one("series", _EVENT_SERIES, optional=True),
        4: text("reportingController"),
        5: text("reportingInstance"),
        6: text("action"),
        7: text("reason"),
        8: one("regarding", _OBJECT_REFERENCE),
        9: one("related", _OBJECT_REFERENCE, optional=True),
        10: text("note"),
        11: text("type"),
        12: one("deprecatedSource", _EVENT_SOURCE),
        13: time("deprecatedFirstTimestamp"),
        14: time("deprecatedLastTimestamp"),
        15: number("deprecatedCount"),
    }
)

_LEASE_SPEC = Message(
    {
        1: text("holderIdentity", optional=True),
        2: number("leaseDurationSeconds", optional=True),
        3: micro_time("acquireTime"),
        4: micro_time("renewTime"),
        5: number("leaseTransitions", optional=True),
        6: text("strategy", optional=True),
        7: text("preferredHolder", optional=True),
    }
)

LEASE = kind_message({2: one("spec", _LEASE_SPEC)})

SCALE = kind_message(
    {
        2: one("spec", Message({1: number("replicas")})),
        3: one("status", Message({1: number("replicas"), 2: text("selector")})),
    }
)


# --- Roles and bindings of rbac.authorization.k8s.io


_POLICY_RULE = Message(
    {
        1: texts("verbs"),
        2: texts("apiGroups"),
        3: texts("resources"),
        4: texts("resourceNames"),
        5: texts("nonResourceURLs"),
    }
)
_ROLE_REFERENCE = Message({1: text("apiGroup"), 2: text("kind"), 3: text("name")})
_SUBJECT = Message({1: text("kind"), 2: text("apiGroup"), 3: text("name"), 4: text("namespace")})
_AGGREGATION_RULE = Message({1: many("clusterRoleSelectors", LABEL_SELECTOR)})

ROLE = kind_message({2: many("rules", _POLICY_RULE)})
CLUSTER_ROLE = kind_message(
    {
        2: many("rules", _POLICY_RULE),
        3: one("aggregationRule", _AGGREGATION_RULE, optional=True),
    }
)
BINDING = kind_message({2: many("subjects", _SUBJECT), 3: one("roleRef", _ROLE_REFERENCE)})


# --- Reviews of access and tokens: authorization.k8s.io and authentication.k8s.io
# The server sets their status, so only their spec is decoded.


_RESOURCE = Message(
    {
        1: text("namespace"),
        2: text("verb"),
        3: text("group"),
        4: text("version"),
        5: text("resource"),
        6: text("subresource"),
        7: text("name"),
        8: one("fieldSelector", SELECTOR_ATTRIBUTES, optional=True),
        9: one("labelSelector", SELECTOR_ATTRIBUTES, optional=True),
    }
)
_ATTRIBUTES = {
    1: one("resourceAttributes", _RESOURCE, optional=True),
    2: one("nonResourceAttributes", Message({1: text("path"), 2: text("verb")}), optional=True),
}
_SUBJECT_ACCESS = Message(
    {
        **_ATTRIBUTES,
        3: text("user"),
        4: texts("groups"),
        5: texts_map("extra"),
        6: text("uid"),
    }
)
_BOUND_OBJECT = Message({1: text("kind"), 2: text("apiVersion"), 3: text("name"), 4: text("uid")})
_TOKEN_REQUEST_SPEC = Message(
    {
        1: texts("audiences"),
        3: one("boundObjectRef", _BOUND_OBJECT, optional=True),
        4: number("expirationSeconds", optional=True),
    }
)

SUBJECT_ACCESS_REVIEW = kind_message({2: one("spec", _SUBJECT_ACCESS)})
SELF_SUBJECT_ACCESS_REVIEW = kind_message({2: one("spec", Message(_ATTRIBUTES))})
SELF_SUBJECT_RULES_REVIEW = kind_message({2: one("spec", Message({1: text("namespace")}))})
SELF_SUBJECT_REVIEW = kind_message({})
TOKEN_REVIEW = kind_message({2: one("spec", Message({1: text("token"), 2: texts("audiences")}))})
TOKEN_REQUEST = kind_message({2: one("spec", _TOKEN_REQUEST_SPEC)})


# --- A protobuf body: four bytes of magic, then a message that names the kind and holds the object


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
    (_RBAC, "Role"): ROLE,
    (_RBAC, "ClusterRole"): CLUSTER_ROLE,
    (_RBAC, "RoleBinding"): BINDING,
    (_RBAC, "ClusterRoleBinding"): BINDING,
    (_AUTHORIZATION, "SubjectAccessReview"): SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "LocalSubjectAccessReview"): SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "SelfSubjectAccessReview"): SELF_SUBJECT_ACCESS_REVIEW,
    (_AUTHORIZATION, "SelfSubjectRulesReview"): SELF_SUBJECT_RULES_REVIEW,
    (_AUTHENTICATION, "SelfSubjectReview"): SELF_SUBJECT_REVIEW,
    (_AUTHENTICATION, "TokenReview"): TOKEN_REVIEW,
    (_AUTHENTICATION, "TokenRequest"): TOKEN_REQUEST,
}

_ENVELOPE = Message(
    {
        1: one("type", Message({1: text("apiVersion"), 2: text("kind")})),
        2: Field("raw", LENGTH, bytes),
        3: text("encoding"),
    }
)


def decode_protobuf(body: bytes) -> JsonObject:
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
    if kind == "DeleteOptions":  # clients send the kind with the apiVersion of any group
        return DELETE_OPTIONS
    found = KINDS.get((api_version, kind))
    if found is None:
        shown = shorten(f"{kind or 'an object without kind'} of {api_version or 'no version'}")
        raise UnsupportedMediaType(
            f"protobuf is supported for built-in kinds only, not for {shown}: send application/json"
        )
    return found
