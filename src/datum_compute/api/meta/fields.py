"""Field types that several kinds share, and annotations: description, list merge, immutability.

``doc`` describes a field, ``map_by`` and ``SET`` define how server-side apply merges a list, and
``merge_patch_by`` how a strategic merge patch does. ``immutable`` rejects changes. A pattern always
comes with a maximum length, because checks of long values would take too long, and uses only the
syntax of RE2. Only required fields outside lists can be immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct

LIST_TYPE, LIST_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
PATCH_STRATEGY, PATCH_KEY = "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"
VALIDATIONS = "x-kubernetes-validations"
IMMUTABLE_RULE = "self == oldSelf"

INT64_MAX = 2**63 - 1


def doc(text: str) -> Meta:
    """Describe a field for ``kubectl explain`` and the reference, in a sentence or two."""
    return Meta(description=text)


def map_by(*keys: str) -> Meta:
    """Merge a list item by item. The values of these fields identify an item."""
    return Meta(extra_json_schema={LIST_TYPE: "map", LIST_KEYS: list(keys)})


def merge_patch_by(key: str) -> Meta:
    """Merge a list item by item in a strategic merge patch. The value of the field identifies an
    item. Without this mark, the patch replaces the list. Only built-in kinds accept such a patch.
    """
    return Meta(extra_json_schema={PATCH_STRATEGY: "merge", PATCH_KEY: key})


def immutable(hint: str) -> Meta:
    """Refuse changes of the field. The hint states what to do instead.

    CRDs contain the rule. The embedded server reads it from the schema (admission/chain.py).
    """
    rule = {"rule": IMMUTABLE_RULE, "message": f"is immutable; {hint}"}
    return Meta(extra_json_schema={VALIDATIONS: [rule]})


def defaults_to(value: Any) -> Meta:
    """Put the value of a default factory into the schema, which cannot be derived from it."""
    return Meta(extra_json_schema={"default": value})


SET = Meta(extra_json_schema={LIST_TYPE: "set"})
# Like ``merge_patch_by``, for a list of scalars: the patch adds its values.
MERGE_PATCH_VALUES = Meta(extra_json_schema={PATCH_STRATEGY: "merge"})
MAP_BY_NAME = map_by("name")


# --- Types of fields of core kinds


# Base64 text. Errors never contain values of this format, because they may be confidential.
Base64 = Annotated[str, Meta(extra_json_schema={"format": "byte"})]
SecretText = Annotated[str, Meta(extra_json_schema={"format": "password"})]
# Times with seconds and with microseconds. Admission normalizes them.
DateTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
MicroTime = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object of any kind."""

    api_version: Annotated[str, doc("API version of the object.")] = ""
    kind: Annotated[str, doc("Kind of the object.")] = ""
    namespace: Annotated[str, doc("Namespace of the object.")] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    uid: Annotated[str, doc("UID of the object.")] = ""
    resource_version: Annotated[str, doc("Resource version of the object.")] = ""
    field_path: Annotated[str, doc("Part of the object, such as spec.containers{name}.")] = ""


class LocalObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object in the same namespace."""

    name: Annotated[str, doc("Name of the object.")] = ""


# --- Patterns, and the description of each that errors contain instead of the pattern
# To add one: a constant, and a line in ``PATTERN_DESCRIPTIONS`` that continues "must be".


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
DNS_LABEL = f"^{_LABEL}$"
DNS_NAME = rf"^{_LABEL}(\.{_LABEL})*$"
PORT_NAME = "^([a-z0-9]+-)*[a-z0-9]*[a-z][a-z0-9]*(-[a-z0-9]+)*$"
CITY_CODE = "^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$"

_POSITIVE = r"([1-9][0-9]*(\.[0-9]+)?|0\.[0-9]*[1-9][0-9]*)"
CPU = f"^{_POSITIVE}m?$"
MEMORY = f"^{_POSITIVE}([kMGTPE]|[KMGTPE]i)?$"

DURATION = "^([1-9][0-9]{0,6})(ms|s|m|h)$"

# [host[:port]/]path[:tag][@digest], as registries understand it.
_HOST = (
    "[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*(:[0-9]+)?"
)
_PATH = "[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_TAG = "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}"
_DIGEST = "[a-z0-9]+:[0-9a-fA-F]{32,}"
IMAGE = f"^({_HOST}/)?{_PATH}(:{_TAG})?(@{_DIGEST})?$"

PATTERN_DESCRIPTIONS: Mapping[str, str] = {
    DNS_LABEL: "lower case letters, digits and inner dashes, such as my-name",
    DNS_NAME: "lower case letters, digits and inner dashes and dots, such as my-name or a.example",
    PORT_NAME: "lower case letters, digits and single inner dashes with at least one letter, such "
    "as http or grpc-2",
    CITY_CODE: "letters, digits and inner dashes, such as DFW",
    CPU: "a number of processors above 0, such as 2, 0.5 or 500m",
    MEMORY: "an amount of memory above 0, such as 512Mi, 2Gi or 1G",
    DURATION: "a whole number above 0 and ms, s, m or h, such as 500ms, 30s or 5m",
    IMAGE: "the name of an image, [registry/]path[:tag][@digest] with a path in lower case, such "
    "as web:1.2 or registry.example/team/web:1.2",
}


# --- Types of fields of our own kinds


_CIDR = "/[0-9]{1,3}$"

DnsLabel = Annotated[str, Meta(pattern=DNS_LABEL, max_length=63)]
DnsName = Annotated[str, Meta(pattern=DNS_NAME, max_length=253)]
PortName = Annotated[
    str,
    Meta(pattern=PORT_NAME, max_length=15),
]
Text = Annotated[str, Meta(max_length=1024)]
ShortText = Annotated[str, Meta(max_length=253)]
Address = Annotated[str, Meta(pattern="^[0-9a-fA-F.:]+$", max_length=45)]
Ipv4Range = Annotated[str, Meta(pattern=f"^[0-9.]+{_CIDR}", max_length=18)]
Ipv6Range = Annotated[str, Meta(pattern=f"^[0-9a-fA-F:.]+{_CIDR}", max_length=49)]
Time = Annotated[str, Meta(max_length=40)]  # RFC 3339

Amount = Annotated[int, Meta(ge=0, le=INT64_MAX)]
PositiveAmount = Annotated[int, Meta(ge=1, le=INT64_MAX)]
Port = Annotated[int, Meta(ge=1, le=65535)]
Mtu = Annotated[int, Meta(ge=1300, le=8856)]
PrefixLength = Annotated[int, Meta(ge=1, le=128)]

# As in Kubernetes a whole number may stand without quotes.
Cpu = Annotated[int, Meta(ge=1, le=INT64_MAX)] | Annotated[str, Meta(pattern=CPU, max_length=20)]
Memory = (
    Annotated[int, Meta(ge=1, le=INT64_MAX)] | Annotated[str, Meta(pattern=MEMORY, max_length=20)]
)

IpFamily = Literal["IPv4", "IPv6"]
IpFamilies = Annotated[list[IpFamily], SET, Meta(min_length=1, max_length=2)]
# The address family of a network that names none.
IP_FAMILY: IpFamily = "IPv6"

CITY_CODE_KEY = "topology.datum.net/city-code"
LocationClass = Literal["datum-managed", "self-managed", "provider-dedicated"]
Topology = Annotated[
    dict[str, Annotated[str, Meta(max_length=63)]],
    doc(f"Place of the location by key, such as {CITY_CODE_KEY} or topology.datum.net/region."),
]

ServicePhase = Literal["Draft", "Published", "Deprecated", "Retired"]


class LocalReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object in the same namespace, of the kind that the field implies."""

    name: Annotated[ShortText, Meta(min_length=1), doc("Name of the object.")]


class NamespacedReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object of the kind that the field implies."""

    name: Annotated[ShortText, Meta(min_length=1), doc("Name of the object.")]
    namespace: Annotated[
        Annotated[str, Meta(max_length=63)],
        doc(
            "Namespace of the object. Defaults to the namespace of the object that "
            "contains the reference."
        ),
    ] = ""


class KindReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to a kind, in any version."""

    api_group: Annotated[ShortText, doc("API group of the kind. Empty for the core group.")]
    kind: Annotated[ShortText, Meta(min_length=1), doc("Name of the kind.")]


class TypedObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object of any kind."""

    api_group: Annotated[ShortText, doc("API group of the object. Empty for the core group.")] = ""
    kind: Annotated[ShortText, Meta(min_length=1), doc("Kind of the object.")]
    name: Annotated[ShortText, Meta(min_length=1), doc("Name of the object.")]
    namespace: Annotated[
        Annotated[str, Meta(max_length=63)],
        doc("Namespace of the object. Empty for a cluster-scoped object."),
    ] = ""
