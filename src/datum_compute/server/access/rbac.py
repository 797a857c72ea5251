"""The roles and bindings of each plane, cached and read again when they change.

The store calls back for every change when it becomes visible. Only changed objects are decoded
again. Rules are not copied: a binding has subjects and the name of a role, and the rules of a user
are references to the rules of roles. The first request of a user with a verb and a resource walks
the bindings and the rules; the result is cached. An object that cannot be decoded grants nothing.

Each CustomResourceDefinition acts as three ClusterRoles: one that reads the objects of the kind,
one that writes them and one for the garbage collector. Aggregated roles select them like other
roles, by the labels ``...aggregate-to-project-viewer``, ``-editor``, ``-admin`` and
``...aggregate-to-manager``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import is_
from typing import TypeVar

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from datum_compute.api.meta.label_selector import match_labels
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.access.rbac_objects import (
    DEFINITIONS,
    SERVICE_ACCOUNTS,
    DecodedBinding,
    DecodedClusterRole,
    DecodedRecords,
    decode_binding,
    decode_cluster_role,
    decode_definition_roles,
    decode_role,
)
from datum_compute.server.access.rbac_rules import Rule, any_allows
from datum_compute.store.records import Record
from datum_compute.store.store import Store

# Permissions depend on these resources.
RESOURCES = (
    ROLE.resource,
    CLUSTER_ROLE.resource,
    ROLE_BINDING.resource,
    CLUSTER_ROLE_BINDING.resource,
    DEFINITIONS,
)
# Limits of each of the two caches of a plane. Keys contain text from callers.
CACHE_ENTRIES_MAX = 4096
CACHE_KEY_CHARACTERS_MAX = 1024
CACHE_NAME_SETS_MAX = 64

Rules = tuple[Rule, ...]
# The sets of names for which rules allow something. None means all names.
_NameSets = tuple[frozenset[str], ...] | None
_Key = tuple[str | tuple[str, ...], ...]
_Value = TypeVar("_Value")
_Callback = Callable[[], None]


@dataclass(slots=True)
class PlaneRoles:
    """The permissions of one plane, with caches of decisions."""

    cluster_roles: Mapping[str, Rules]
    roles: Mapping[tuple[str, str], Rules]
    cluster_bindings: Sequence[DecodedBinding]
    bindings: Mapping[str, Sequence[DecodedBinding]]  # by namespace
    # By user name, groups and namespace.
    _held: dict[_Key, tuple[Rules, ...]] = field(default_factory=dict)
    # By user name, groups, namespace, verb and resource.
    _allowed_names: dict[_Key, _NameSets] = field(default_factory=dict)

    def allows(self, user: User, attributes: Attributes, *, cache: bool = True) -> bool:
        """Return True if a role of the user allows this. Pass ``cache=False`` if the user or the
        attributes come from the body of a request, so that callers cannot fill the cache."""
        if attributes.path:
            roles = self._cached_roles(user, attributes.namespace, cache=cache)
            return any(any_allows(rules, attributes) for rules in roles)
        key: _Key = (
            user.name,
            user.groups,
            attributes.namespace,
            attributes.verb,
            attributes.group,
            attributes.resource,
            attributes.subresource,
        )
        try:
            names = self._allowed_names[key]
        except KeyError:
            names = self._find_names(user, attributes, cache=cache)
            if cache and (names is None or len(names) <= CACHE_NAME_SETS_MAX):
                _add_to_cache(self._allowed_names, key, names)
        return names is None or any(attributes.name in allowed for allowed in names)

    def rules_of(self, user: User, namespace: str) -> Rules:
        """Return the rules of a user in a namespace; if it is empty, those for the whole plane.
        Equal rules of several roles are repeated."""
        return tuple(chain.from_iterable(self._cached_roles(user, namespace, cache=True)))

    def _find_names(self, user: User, attributes: Attributes, *, cache: bool) -> _NameSets:
        found: dict[int, frozenset[str]] = {}
        for rules in self._cached_roles(user, attributes.namespace, cache=cache):
            for rule in rules:
                if rule.allows_some(attributes):
                    if not rule.names:
                        return None
                    found[id(rule.names)] = rule.names
        return tuple(found.values())

    def _cached_roles(self, user: User, namespace: str, *, cache: bool) -> tuple[Rules, ...]:
        key = (user.name, user.groups, namespace)
        found = self._held.get(key)
        if found is None:
            found = self._find_roles(user, namespace)
            if cache:
                _add_to_cache(self._held, key, found)
        return found

    def _find_roles(self, user: User, namespace: str) -> tuple[Rules, ...]:
        """Return the rules of each role that is bound to the user, each role once."""
        subjects = frozenset([("User", user.name), *(("Group", group) for group in user.groups)])
        namespaced = self.bindings.get(namespace, ()) if namespace else ()
        found: dict[int, Rules] = {}
        for binding in chain(self.cluster_bindings, namespaced):
            if not subjects.isdisjoint(binding.subjects):
                rules = self._rules_of_binding(binding)
                found[id(rules)] = rules
        return tuple(found.values())

    def _rules_of_binding(self, binding: DecodedBinding) -> Rules:
        if binding.is_cluster_role or not binding.namespace:
            return self.cluster_roles.get(binding.role, ())
        return self.roles.get((binding.namespace, binding.role), ())


class _RoleReader:
    """Decodes the roles and bindings of one plane. Keeps decoded objects that did not change."""

    def __init__(self, protected_groups: Collection[str]) -> None:
        decode_definition = partial(decode_definition_roles, protected=protected_groups)
        self._cluster_roles = DecodedRecords(decode_cluster_role)
        self._definitions = DecodedRecords(decode_definition)
        self._roles = DecodedRecords(decode_role)
        self._cluster_bindings = DecodedRecords(decode_binding)
        self._bindings = DecodedRecords(decode_binding)
        self._last_roles: list[DecodedClusterRole] = []
        self._aggregated: Mapping[str, Rules] = {}

    def read(self, store: Store, plane: PlaneName) -> PlaneRoles:
        def records(resource: str) -> Sequence[Record]:
            return store.snapshot(plane, resource).records

        cluster_roles = self._cluster_roles.read(records(CLUSTER_ROLE.resource))
        for roles_of_kind in self._definitions.read(records(DEFINITIONS)):
            cluster_roles.extend(roles_of_kind)
        if not _are_identical(cluster_roles, self._last_roles):
            self._aggregated = {
                role.name: _aggregate_rules(role, cluster_roles) for role in cluster_roles
            }
            self._last_roles = cluster_roles
        roles = self._roles.read(records(ROLE.resource))
        bindings: dict[str, list[DecodedBinding]] = {}
        for binding in self._bindings.read(records(ROLE_BINDING.resource)):
            bindings.setdefault(binding.namespace, []).append(binding)
        return PlaneRoles(
            self._aggregated,
            {(role.namespace, role.name): role.rules for role in roles},
            self._cluster_bindings.read(records(CLUSTER_ROLE_BINDING.resource)),
            bindings,
        )


class RbacCache:
    """The permissions of every plane. Calls ``on_change`` with each plane on which they may have
    changed."""

    def __init__(
        self,
        store: Store,
        protected_groups: Collection[str],
        on_change: Callable[[PlaneName], None],
    ) -> None:
        self._store = store
        self._protected = frozenset(protected_groups)
        self._on_change = on_change
        self._roles: dict[PlaneName, PlaneRoles] = {}
        self._readers: dict[PlaneName, _RoleReader] = {}
        self._callbacks: dict[PlaneName, tuple[_Callback, _Callback]] = {}

    def get(self, plane: PlaneName) -> PlaneRoles | None:
        """Return the permissions of a plane; None if the plane does not exist."""
        found = self._roles.get(plane)
        if found is not None:
            return found
        try:
            self._store.version(plane)
        except NotFound:
            return None
        self._subscribe(plane)
        found = self._roles[plane] = self._read(plane)
        return found

    def _subscribe(self, plane: PlaneName) -> None:
        """Subscribe to changes. The store ignores a callback that it already has."""
        new = (partial(self._invalidate, plane), partial(self._on_change, plane))
        invalidate, accounts_changed = self._callbacks.setdefault(plane, new)
        for resource in RESOURCES:
            self._store.subscribe(plane, resource, invalidate)
        self._store.subscribe(plane, SERVICE_ACCOUNTS, accounts_changed)

    def _invalidate(self, plane: PlaneName) -> None:
        self._roles.pop(plane, None)
        if not self._store.has_plane(plane):
            self._callbacks.pop(plane, None)
            self._readers.pop(plane, None)
        self._on_change(plane)

    def _read(self, plane: PlaneName) -> PlaneRoles:
        reader = self._readers.get(plane)
        if reader is None:
            reader = self._readers[plane] = _RoleReader(self._protected)
        return reader.read(self._store, plane)


def _aggregate_rules(role: DecodedClusterRole, others: list[DecodedClusterRole]) -> Rules:
    """Return the rules of the role and of the roles that it selects. A selected role contributes
    only its own rules."""
    if not role.selectors:
        return role.rules
    selected = [
        rule
        for other in others
        if other.name != role.name
        and any(match_labels(selector, other.labels) for selector in role.selectors)
        for rule in other.rules
    ]
    return (*role.rules, *selected)


def _are_identical(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))


def _add_to_cache(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    characters = sum(len(part) if isinstance(part, str) else sum(map(len, part)) for part in key)
    if characters > CACHE_KEY_CHARACTERS_MAX:
        return
    if len(cache) >= CACHE_ENTRIES_MAX:
        cache.clear()
    cache[key] = value
