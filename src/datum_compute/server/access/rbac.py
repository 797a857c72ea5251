"""The roles and bindings of each plane, read from the store when they have changed.

The store reports every change at the moment from which it is visible; only the objects that have
changed are decoded again. Rules are never copied: a binding has subjects and the name of a role,
and what a user holds is a list of references to the rules of roles. The first request of a user
with a verb and a resource walks the bindings, and the rules that the user holds. An object that
cannot be decoded grants nothing.

Kinds that users define belong to the users: each CustomResourceDefinition counts as three
ClusterRoles, one that reads its objects, one that writes them and one for the garbage collector,
which aggregated roles take up like any other (labels ``...aggregate-to-project-viewer``,
``-editor`` and ``-admin``, and ``...aggregate-to-manager``).
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
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User
from datum_compute.server.access.rbac_objects import (
    DEFINITIONS,
    SERVICE_ACCOUNTS,
    Binding,
    ClusterRole,
    DecodedRecords,
    decode_binding,
    decode_cluster_role,
    decode_definition_roles,
    decode_role,
)
from datum_compute.server.access.rbac_rules import Rule, allowed
from datum_compute.store.records import Record
from datum_compute.store.store import Store

# What permissions are made of.
RESOURCES = (
    ROLE.resource,
    CLUSTER_ROLE.resource,
    ROLE_BINDING.resource,
    CLUSTER_ROLE_BINDING.resource,
    DEFINITIONS,
)
# Limits of each of the two caches of a plane. Keys contain text of callers.
CACHE_ENTRIES_MAX = 4096
CACHE_KEY_CHARACTERS_MAX = 1024
CACHE_NAME_SETS_MAX = 64

Rules = tuple[Rule, ...]
# The names for which something is allowed, as the rules hold them. None stands for every name.
_NameSets = tuple[frozenset[str], ...] | None
_Key = tuple[str | tuple[str, ...], ...]  # texts, and the groups of a user
_Value = TypeVar("_Value")
_Waker = Callable[[], None]


@dataclass(slots=True)
class PlaneRoles:
    """All that one plane grants."""

    cluster_roles: Mapping[str, Rules]
    roles: Mapping[tuple[str, str], Rules]
    cluster_bindings: Sequence[Binding]
    bindings: Mapping[str, Sequence[Binding]]  # by namespace
    # By user name, groups and namespace.
    _held: dict[_Key, tuple[Rules, ...]] = field(default_factory=dict)
    # By user name, groups, namespace, verb and resource.
    _decided: dict[_Key, _NameSets] = field(default_factory=dict)

    def allows(self, user: User, wanted: Attributes, *, cache: bool = True) -> bool:
        """Return True if a role of the user allows this. Decisions about attributes or users that
        a caller makes up are not worth a place in the cache."""
        if wanted.path:
            held = self._held_roles(user, wanted.namespace, cache=cache)
            return any(allowed(rules, wanted) for rules in held)
        sort = (wanted.verb, wanted.group, wanted.resource, wanted.subresource)
        key = (user.name, user.groups, wanted.namespace, *sort)
        try:
            names = self._decided[key]
        except KeyError:
            names = self._allowed_names(user, wanted, cache=cache)
            if cache and (names is None or len(names) <= CACHE_NAME_SETS_MAX):
                _add_to_cache(self._decided, key, names)
        return names is None or any(wanted.name in some for some in names)

    def rules_of(self, user: User, namespace: str) -> Rules:
        """Return the rules of a user in a namespace; without one, those for the whole plane. Equal
        rules of several roles are repeated."""
        return tuple(chain.from_iterable(self._held_roles(user, namespace, cache=True)))

    def _allowed_names(self, user: User, wanted: Attributes, *, cache: bool) -> _NameSets:
        found: dict[int, frozenset[str]] = {}
        for rules in self._held_roles(user, wanted.namespace, cache=cache):
            for rule in rules:
                if rule.allows_some(wanted):
                    if not rule.names:
                        return None
                    found[id(rule.names)] = rule.names
        return tuple(found.values())

    def _held_roles(self, user: User, namespace: str, *, cache: bool) -> tuple[Rules, ...]:
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
        near = self.bindings.get(namespace, ()) if namespace else ()
        found: dict[int, Rules] = {}
        for binding in chain(self.cluster_bindings, near):
            if not subjects.isdisjoint(binding.subjects):
                rules = self._rules_of_binding(binding)
                found[id(rules)] = rules
        return tuple(found.values())

    def _rules_of_binding(self, binding: Binding) -> Rules:
        if binding.of_cluster or not binding.namespace:
            return self.cluster_roles.get(binding.role, ())
        return self.roles.get((binding.namespace, binding.role), ())


class _PlaneSource:
    """The roles and bindings of one plane as they were last decoded."""

    def __init__(self, protected_groups: Collection[str]) -> None:
        decode_definition = partial(decode_definition_roles, protected=protected_groups)
        self._cluster_roles = DecodedRecords(decode_cluster_role)
        self._definitions = DecodedRecords(decode_definition)
        self._roles = DecodedRecords(decode_role)
        self._cluster_bindings = DecodedRecords(decode_binding)
        self._bindings = DecodedRecords(decode_binding)
        self._named: list[ClusterRole] = []
        self._aggregated: Mapping[str, Rules] = {}

    def read(self, store: Store, plane: PlaneName) -> PlaneRoles:
        def records(resource: str) -> Sequence[Record]:
            return store.snapshot(plane, resource).records

        named = self._cluster_roles.read(records(CLUSTER_ROLE.resource))
        for roles_of_kind in self._definitions.read(records(DEFINITIONS)):
            named.extend(roles_of_kind)
        if not _are_identical(named, self._named):
            self._aggregated = {role.name: _aggregate(role, named) for role in named}
            self._named = named
        roles = self._roles.read(records(ROLE.resource))
        bindings: dict[str, list[Binding]] = {}
        for binding in self._bindings.read(records(ROLE_BINDING.resource)):
            bindings.setdefault(binding.namespace, []).append(binding)
        return PlaneRoles(
            self._aggregated,
            {(role.namespace, role.name): role.rules for role in roles},
            self._cluster_bindings.read(records(CLUSTER_ROLE_BINDING.resource)),
            bindings,
        )


class RbacCache:
    """The roles of every plane. ``on_change`` hears of each plane whose grants may have changed."""

    def __init__(
        self,
        store: Store,
        protected_groups: Collection[str],
        on_change: Callable[[PlaneName], None],
    ) -> None:
        self._store = store
        self._protected = frozenset(protected_groups)
        self._on_change = on_change
        self._roles: dict[PlaneName, PlaneRoles] = {}  # as they are now
        self._sources: dict[PlaneName, _PlaneSource] = {}
        self._wakers: dict[PlaneName, tuple[_Waker, _Waker]] = {}

    def of(self, plane: PlaneName) -> PlaneRoles | None:
        """None when there is no such plane."""
        found = self._roles.get(plane)
        if found is not None:
            return found
        try:
            self._store.version(plane)
        except NotFound:
            return None
        self._follow(plane)
        found = self._roles[plane] = self._read(plane)
        return found

    def _follow(self, plane: PlaneName) -> None:
        """To be told when what is read next is no longer so; asking again changes nothing."""
        new = (partial(self._changed, plane), partial(self._on_change, plane))
        changed, tokens_changed = self._wakers.setdefault(plane, new)
        for resource in RESOURCES:
            self._store.subscribe(plane, resource, changed)
        self._store.subscribe(plane, SERVICE_ACCOUNTS, tokens_changed)

    def _changed(self, plane: PlaneName) -> None:
        self._roles.pop(plane, None)
        if plane not in self._store.planes():
            self._wakers.pop(plane, None)
            self._sources.pop(plane, None)
        self._on_change(plane)

    def _read(self, plane: PlaneName) -> PlaneRoles:
        source = self._sources.get(plane)
        if source is None:
            source = self._sources[plane] = _PlaneSource(self._protected)
        return source.read(self._store, plane)


def _aggregate(role: ClusterRole, others: list[ClusterRole]) -> Rules:
    """Return its own rules and those of the roles it selects. Selection does not go deeper."""
    if not role.selectors:
        return role.rules
    taken = [
        rule
        for other in others
        if other.name != role.name and any(s.matches(other.labels) for s in role.selectors)
        for rule in other.rules
    ]
    return (*role.rules, *taken)


def _are_identical(left: Sequence[object], right: Sequence[object]) -> bool:
    return len(left) == len(right) and all(map(is_, left, right))


def _add_to_cache(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    characters = sum(len(part) if isinstance(part, str) else sum(map(len, part)) for part in key)
    if characters > CACHE_KEY_CHARACTERS_MAX:
        return
    if len(cache) >= CACHE_ENTRIES_MAX:
        cache.clear()
    cache[key] = value
