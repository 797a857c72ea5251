"""Stored roles, bindings and definitions as plain values, in the order of their names.

Only the fields that grant something are looked at, and only when the grants of a plane are built.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from datum_compute.api.codec import DecodeError, decode_as
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    DEFINITION,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
)
from datum_compute.api.plane import PlaneName
from datum_compute.server.access.rules import Rule
from datum_compute.store.record import Record
from datum_compute.store.store import Store

M = TypeVar("M")

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
class Binding:
    namespace: str
    role: str
    of_cluster: bool
    subjects: tuple[tuple[str, str], ...]


def service_account_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def cluster_roles(store: Store, plane: PlaneName) -> Iterator[ClusterRole]:
    for record, role in _all(store, plane, CLUSTER_ROLE.resource, _Role):
        selectors = role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else []
        rules = tuple(map(_rule, role.rules))
        yield ClusterRole(record.key.name, record.labels, rules, tuple(selectors))


def roles(store: Store, plane: PlaneName) -> dict[tuple[str, str], tuple[Rule, ...]]:
    return {
        (record.key.namespace, record.key.name): tuple(map(_rule, role.rules))
        for record, role in _all(store, plane, ROLE.resource, _Role)
    }


def cluster_bindings(store: Store, plane: PlaneName) -> Iterator[Binding]:
    return _bindings(store, plane, CLUSTER_ROLE_BINDING.resource)


def bindings(store: Store, plane: PlaneName) -> Iterator[Binding]:
    return _bindings(store, plane, ROLE_BINDING.resource)


def roles_of_definitions(
    store: Store, plane: PlaneName, protected: Collection[str]
) -> Iterator[ClusterRole]:
    """What users may do with kinds they defined. Groups the platform serves itself are left out:
    defining a kind must never open one that exists."""
    for record, definition in _all(store, plane, DEFINITIONS, _Definition):
        group, plural = definition.spec.group, definition.spec.names.plural
        if not group or not plural or group in protected or group.endswith(".k8s.io"):
            continue
        groups = frozenset({group})
        resources = frozenset({plural, f"{plural}/status", f"{plural}/scale"})
        name = record.key.name
        yield ClusterRole(
            f"system:definition:read:{name}",
            {f"{AGGREGATE_TO}project-viewer": "true"},
            (Rule(_READ, groups, resources),),
        )
        yield ClusterRole(
            f"system:definition:write:{name}",
            {f"{AGGREGATE_TO}project-{who}": "true" for who in ("editor", "admin")},
            (Rule(_READ | _WRITE, groups, resources),),
        )
        yield ClusterRole(
            f"system:definition:keep:{name}",
            {f"{AGGREGATE_TO}manager": "true"},
            (Rule(frozenset({"patch"}), groups, frozenset({plural})),),
        )


def rules_of(obj: Mapping[str, object]) -> tuple[Rule, ...]:
    """The rules of a role as a caller sent it; its schema has been checked."""
    return tuple(map(_rule, msgspec.convert(obj, type=_Role).rules))


def _all(
    store: Store, plane: PlaneName, resource: str, model: type[M]
) -> Iterator[tuple[Record, M]]:
    for record in store.snapshot(plane, resource).records:
        try:
            yield record, decode_as(record.body, model)
        except DecodeError:
            continue


def _bindings(store: Store, plane: PlaneName, resource: str) -> Iterator[Binding]:
    for record, binding in _all(store, plane, resource, _Binding):
        yield Binding(
            record.key.namespace,
            binding.role_ref.name,
            binding.role_ref.kind == CLUSTER_ROLE.kind,
            tuple(_subject(subject, record.key.namespace) for subject in binding.subjects),
        )


def _subject(subject: _Subject, namespace: str) -> tuple[str, str]:
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
