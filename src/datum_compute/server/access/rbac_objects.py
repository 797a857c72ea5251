"""Decodes stored roles, bindings and definitions.

Only the fields that grant permissions are decoded, once for each version of an object.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    DEFINITION,
    SERVICE_ACCOUNT,
)
from datum_compute.api.meta.codec import DecodeError, decode_as
from datum_compute.api.meta.label_selector import LabelSelector, LabelTerm, selector_terms
from datum_compute.server.access.rbac_rules import Rule
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record

M = TypeVar("M")

Subject = tuple[str, str]  # kind (User or Group) and name

DEFINITIONS = DEFINITION.storage
SERVICE_ACCOUNTS = SERVICE_ACCOUNT.resource
AGGREGATE_TO = "rbac.compute.datumapis.com/aggregate-to-"
_READ = frozenset({"get", "list", "watch"})
_WRITE = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _Rule(msgspec.Struct, frozen=True, rename="camel"):
    verbs: list[str] = []
    api_groups: list[str] = []
    resources: list[str] = []
    resource_names: list[str] = []
    non_resource_urls: list[str] = msgspec.field(name="nonResourceURLs", default_factory=list)


class _AggregationRule(msgspec.Struct, frozen=True, rename="camel"):
    cluster_role_selectors: list[LabelSelector] = []


class _Role(msgspec.Struct, frozen=True, rename="camel"):
    rules: list[_Rule] = []
    aggregation_rule: _AggregationRule | None = None


class _Subject(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""


class _RoleRef(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""


class _Binding(msgspec.Struct, frozen=True, rename="camel"):
    role_ref: _RoleRef = _RoleRef()
    subjects: list[_Subject] = []


class _Names(msgspec.Struct, frozen=True):
    plural: str = ""


class _DefinitionSpec(msgspec.Struct, frozen=True):
    group: str = ""
    names: _Names = _Names()


class _Definition(msgspec.Struct, frozen=True):
    spec: _DefinitionSpec = _DefinitionSpec()


@dataclass(frozen=True, slots=True)
class DecodedClusterRole:
    """``selectors`` are those of the aggregation rule: the role also has the rules of the roles
    that they match."""

    name: str
    labels: Mapping[str, str]
    rules: tuple[Rule, ...]
    selectors: tuple[tuple[LabelTerm, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class DecodedRole:
    namespace: str
    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class DecodedBinding:
    namespace: str
    role: str
    is_cluster_role: bool
    subjects: frozenset[Subject]


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


class DecodedRecords(Generic[M]):
    """The decoded objects of one resource of a plane. ``read`` decodes the records that have
    changed since its last call, and omits objects that cannot be decoded."""

    def __init__(self, decode: Callable[[Record], M]) -> None:
        self._decode = decode
        self._known: dict[ObjectKey, tuple[Record, M | None]] = {}

    def read(self, records: Iterable[Record]) -> list[M]:
        before, self._known = self._known, {}
        result = []
        for record in records:
            known = before.get(record.key)
            if known is None or known[0] is not record:
                known = (record, self._decode_valid(record))
            self._known[record.key] = known
            if known[1] is not None:
                result.append(known[1])
        return result

    def _decode_valid(self, record: Record) -> M | None:
        try:
            return self._decode(record)
        except DecodeError:
            return None


def decode_cluster_role(record: Record) -> DecodedClusterRole:
    role = decode_as(record.body, _Role)
    selectors = role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else []
    terms = map(selector_terms, selectors)
    rules = tuple(map(_build_rule, role.rules))
    # An empty selector selects no role.
    return DecodedClusterRole(record.key.name, record.labels, rules, tuple(filter(None, terms)))


def decode_role(record: Record) -> DecodedRole:
    rules = tuple(map(_build_rule, decode_as(record.body, _Role).rules))
    return DecodedRole(record.key.namespace, record.key.name, rules)


def decode_binding(record: Record) -> DecodedBinding:
    binding = decode_as(record.body, _Binding)
    return DecodedBinding(
        record.key.namespace,
        binding.role_ref.name,
        binding.role_ref.kind == CLUSTER_ROLE.kind,
        frozenset(_build_subject(subject, record.key.namespace) for subject in binding.subjects),
    )


def decode_definition_roles(
    record: Record, protected: Collection[str]
) -> tuple[DecodedClusterRole, ...]:
    """Return the roles for a custom kind. A kind in a group of the platform gets none, so that a
    definition cannot give access to an existing kind."""
    spec = decode_as(record.body, _Definition).spec
    group, plural = spec.group, spec.names.plural
    if not group or not plural or group in protected or group.endswith(".k8s.io"):
        return ()
    groups = frozenset({group})
    resources = frozenset({plural, f"{plural}/status", f"{plural}/scale"})
    name = record.key.name
    return (
        DecodedClusterRole(
            f"system:definition:read:{name}",
            {f"{AGGREGATE_TO}project-viewer": "true"},
            (Rule(_READ, groups, resources),),
        ),
        DecodedClusterRole(
            f"system:definition:write:{name}",
            {f"{AGGREGATE_TO}project-{role}": "true" for role in ("editor", "admin")},
            (Rule(_READ | _WRITE, groups, resources),),
        ),
        DecodedClusterRole(
            f"system:definition:keep:{name}",
            {f"{AGGREGATE_TO}manager": "true"},
            (Rule(frozenset({"patch"}), groups, frozenset({plural})),),
        ),
    )


def rules_of(obj: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return the rules of a role whose schema has been validated."""
    return tuple(map(_build_rule, msgspec.convert(obj, type=_Role).rules))


def _build_subject(subject: _Subject, namespace: str) -> Subject:
    if subject.kind == "ServiceAccount":
        return ("User", service_account_name(subject.namespace or namespace, subject.name))
    return (subject.kind, subject.name)


def _build_rule(rule: _Rule) -> Rule:
    return Rule(
        verbs=frozenset(rule.verbs),
        groups=frozenset(rule.api_groups),
        resources=frozenset(rule.resources),
        names=frozenset(rule.resource_names),
        paths=tuple(dict.fromkeys(rule.non_resource_urls)),
    )
