"""Stored roles, bindings and definitions as plain values.

Only the fields that grant something are decoded, once for each version of an object.
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


class _Requirement(msgspec.Struct, frozen=True):
    key: str
    operator: str
    values: list[str] = []


class Selector(msgspec.Struct, frozen=True, rename="camel"):
    """Labels a ClusterRole must have; a selector that says nothing selects nothing."""

    match_labels: dict[str, str] = {}
    match_expressions: list[_Requirement] = []

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not self.match_labels and not self.match_expressions:
            return False
        return all(labels.get(k) == v for k, v in self.match_labels.items()) and all(
            _holds(requirement, labels) for requirement in self.match_expressions
        )


class _Aggregation(msgspec.Struct, frozen=True, rename="camel"):
    cluster_role_selectors: list[Selector] = []


class _Role(msgspec.Struct, frozen=True, rename="camel"):
    rules: list[_Rule] = []
    aggregation_rule: _Aggregation | None = None


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
class ClusterRole:
    name: str
    labels: Mapping[str, str]
    rules: tuple[Rule, ...]
    selectors: tuple[Selector, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespacedRole:
    namespace: str
    name: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Binding:
    namespace: str
    role: str
    of_cluster: bool
    subjects: frozenset[Subject]


def service_account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


class DecodedRecords(Generic[M]):
    """The decoded objects of one resource of a plane. ``read`` decodes the records that have
    changed since its last call. An object that cannot be decoded is left out."""

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


def decode_cluster_role(record: Record) -> ClusterRole:
    role = decode_as(record.body, _Role)
    selectors = role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else []
    rules = tuple(map(_rule, role.rules))
    return ClusterRole(record.key.name, record.labels, rules, tuple(selectors))


def decode_role(record: Record) -> NamespacedRole:
    rules = tuple(map(_rule, decode_as(record.body, _Role).rules))
    return NamespacedRole(record.key.namespace, record.key.name, rules)


def decode_binding(record: Record) -> Binding:
    binding = decode_as(record.body, _Binding)
    return Binding(
        record.key.namespace,
        binding.role_ref.name,
        binding.role_ref.kind == CLUSTER_ROLE.kind,
        frozenset(_subject(subject, record.key.namespace) for subject in binding.subjects),
    )


def decode_definition_roles(record: Record, protected: Collection[str]) -> tuple[ClusterRole, ...]:
    """Return the roles for a kind that users define. Groups that the platform serves get none, so
    that a definition cannot give access to an existing kind."""
    spec = decode_as(record.body, _Definition).spec
    group, plural = spec.group, spec.names.plural
    if not group or not plural or group in protected or group.endswith(".k8s.io"):
        return ()
    groups = frozenset({group})
    resources = frozenset({plural, f"{plural}/status", f"{plural}/scale"})
    name = record.key.name
    return (
        ClusterRole(
            f"system:definition:read:{name}",
            {f"{AGGREGATE_TO}project-viewer": "true"},
            (Rule(_READ, groups, resources),),
        ),
        ClusterRole(
            f"system:definition:write:{name}",
            {f"{AGGREGATE_TO}project-{who}": "true" for who in ("editor", "admin")},
            (Rule(_READ | _WRITE, groups, resources),),
        ),
        ClusterRole(
            f"system:definition:keep:{name}",
            {f"{AGGREGATE_TO}manager": "true"},
            (Rule(frozenset({"patch"}), groups, frozenset({plural})),),
        ),
    )


def rules_of(obj: Mapping[str, object]) -> tuple[Rule, ...]:
    """The rules of a role as a caller sent it; its schema has been checked."""
    return tuple(map(_rule, msgspec.convert(obj, type=_Role).rules))


def _subject(subject: _Subject, namespace: str) -> Subject:
    if subject.kind == "ServiceAccount":
        return ("User", service_account_name(subject.namespace or namespace, subject.name))
    return (subject.kind, subject.name)


def _rule(rule: _Rule) -> Rule:
    return Rule(
        verbs=frozenset(rule.verbs),
        groups=frozenset(rule.api_groups),
        resources=frozenset(rule.resources),
        names=frozenset(rule.resource_names),
        paths=tuple(dict.fromkeys(rule.non_resource_urls)),
    )


def _holds(requirement: _Requirement, labels: Mapping[str, str]) -> bool:
    match requirement.operator:
        case "In":
            return labels.get(requirement.key) in requirement.values
        case "NotIn":
            return labels.get(requirement.key) not in requirement.values
        case "Exists":
            return requirement.key in labels
        case "DoesNotExist":
            return requirement.key not in labels
        case _:
            return False
