"""Field types that several kinds share, and the words that say how a field behaves.

``says`` describes a field (``kubectl explain`` shows it), ``keyed`` and ``SET`` say how a list is
merged, ``immutable`` that a field keeps its first value. Rules kept here: a pattern never comes
without a longest length (a check must end soon, whatever is sent), uses only what RE2 knows, and
only fields that are required and lie outside lists are immutable.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.patternwords import CPU, DNS_LABEL, DNS_NAME, MEMORY, PORT_NAME

LIST_TYPE, LIST_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
VALIDATIONS = "x-kubernetes-validations"
IMMUTABLE_RULE = "self == oldSelf"

INT64_MAX = 2**63 - 1


def says(text: str) -> Meta:
    """What the field is, in one sentence."""
    return Meta(description=text)


def keyed(*keys: str) -> Meta:
    """A list whose items are told apart by some of their fields."""
    return Meta(extra_json_schema={LIST_TYPE: "map", LIST_KEYS: list(keys)})


def immutable(hint: str) -> Meta:
    """The field cannot change; the hint says what to do instead. CRDs carry the rule, and the
    embedded server reads it off the schema (admission/immutability.py)."""
    rule = {"rule": IMMUTABLE_RULE, "message": f"is immutable; {hint}"}
    return Meta(extra_json_schema={VALIDATIONS: [rule]})


def defaults_to(value: Any) -> Meta:
    """Says in the schema what a default factory makes; schemas cannot see into factories."""
    return Meta(extra_json_schema={"default": value})


SET = Meta(extra_json_schema={LIST_TYPE: "set"})
MAP_BY_NAME = keyed("name")

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
    says(f"Where it is, by key: {CITY_CODE_KEY}, topology.datum.net/region, ..."),
]

ServicePhase = Literal["Draft", "Published", "Deprecated", "Retired"]


class LocalReference(ApiStruct, frozen=True, kw_only=True):
    """An object of a kind that the field implies, in the same namespace (if it has one)."""

    name: Annotated[ShortText, Meta(min_length=1), says("Name of the object.")]


class NamespacedReference(ApiStruct, frozen=True, kw_only=True):
    """An object of a kind that the field implies; its namespace is that of the holder, if empty."""

    name: Annotated[ShortText, Meta(min_length=1), says("Name of the object.")]
    namespace: Annotated[
        Annotated[str, Meta(max_length=63)],
        says("Namespace of the object; empty means the namespace of the object that refers to it."),
    ] = ""


class KindReference(ApiStruct, frozen=True, kw_only=True):
    """A kind, whatever its version."""

    api_group: Annotated[ShortText, says("API group of the kind; empty for the core group.")]
    kind: Annotated[ShortText, Meta(min_length=1), says("Name of the kind.")]


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """An object of any kind."""

    api_group: Annotated[ShortText, says("API group; empty for the core group.")] = ""
    kind: Annotated[ShortText, Meta(min_length=1), says("Kind of the object.")]
    name: Annotated[ShortText, Meta(min_length=1), says("Name of the object.")]
    namespace: Annotated[
        Annotated[str, Meta(max_length=63)],
        says("Namespace of the object; empty for a cluster-scoped one."),
    ] = ""
