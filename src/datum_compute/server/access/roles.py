"""The roles and bindings of each plane, read from the store when they have changed.

Nothing is decoded while they stay as they are: the store tells of every change at the moment from
which it can be seen. The first request of its sort costs a walk over the rules its user holds. An
object that cannot be read grants nothing.

Kinds that users define belong to the users: each CustomResourceDefinition counts as three
ClusterRoles, one that reads its objects, one that writes them and one for the garbage collector,
which aggregated roles take up like any other (labels ``...aggregate-to-project-viewer``,
``-editor`` and ``-admin``, and ``...aggregate-to-manager``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from datum_compute.api.plane import PlaneName
from datum_compute.server.access import rolesource
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.rolesource import Binding, ClusterRole
from datum_compute.server.access.rules import Rule, allowed
from datum_compute.server.authentication import User
from datum_compute.store.store import Store

# What permissions are made of.
RESOURCES = (
    ROLE.resource,
    CLUSTER_ROLE.resource,
    ROLE_BINDING.resource,
    CLUSTER_ROLE_BINDING.resource,
    rolesource.DEFINITIONS,
)
_REMEMBERED_MAX = 4096

Subject = tuple[str, str]  # kind (User or Group) and name
Rules = tuple[Rule, ...]
_Waker = Callable[[], None]


@dataclass(slots=True)
class PlaneRoles:
    """All that one plane grants."""

    cluster_roles: Mapping[str, Rules]
    roles: Mapping[tuple[str, str], Rules]
    everywhere: Mapping[Subject, Rules]
    in_namespace: Mapping[str, Mapping[Subject, Rules]]
    _remembered: dict[tuple[str, tuple[str, ...], str], Rules] = field(default_factory=dict)
    # By user, namespace, verb and resource: for which names that is allowed, None is for all.
    _decided: dict[tuple[object, ...], frozenset[str] | None] = field(default_factory=dict)

    def allows(self, user: User, wanted: Attributes) -> bool:
        if wanted.path:
            return allowed(self.rules_of(user, wanted.namespace), wanted)
        sort = (wanted.verb, wanted.group, wanted.resource, wanted.subresource)
        asked = (user.name, user.groups, wanted.namespace, *sort)
        try:
            names = self._decided[asked]
        except KeyError:
            if len(self._decided) >= _REMEMBERED_MAX:
                self._decided.clear()
            names = self._decided[asked] = self._names(user, wanted)
        return names is None or wanted.name in names

    def _names(self, user: User, wanted: Attributes) -> frozenset[str] | None:
        fitting = [r for r in self.rules_of(user, wanted.namespace) if r.allows_some(wanted)]
        if any(not rule.names for rule in fitting):
            return None
        return frozenset().union(*(rule.names for rule in fitting))

    def rules_of(self, user: User, namespace: str) -> Rules:
        """The rules a user holds in a namespace; with no namespace, those for the whole plane."""
        who = (user.name, user.groups, namespace)
        found = self._remembered.get(who)
        if found is None:
            if len(self._remembered) >= _REMEMBERED_MAX:
                self._remembered.clear()
            found = self._remembered[who] = self._collected(user, namespace)
        return found

    def _collected(self, user: User, namespace: str) -> Rules:
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        places = [self.everywhere, self.in_namespace.get(namespace, {}) if namespace else {}]
        held = [rule for place in places for who in subjects for rule in place.get(who, ())]
        return tuple(dict.fromkeys(held))


class RoleBook:
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
        self._store.subscribe(plane, rolesource.SERVICE_ACCOUNTS, tokens_changed)

    def _changed(self, plane: PlaneName) -> None:
        self._roles.pop(plane, None)
        if plane not in self._store.planes():
            self._wakers.pop(plane, None)
        self._on_change(plane)

    def _read(self, plane: PlaneName) -> PlaneRoles:
        store = self._store
        named = [
            *rolesource.cluster_roles(store, plane),
            *rolesource.roles_of_definitions(store, plane, self._protected),
        ]
        cluster_roles = {role.name: _aggregated(role, named) for role in named}
        roles = rolesource.roles(store, plane)
        everywhere: dict[Subject, Rules] = {}
        for binding in rolesource.cluster_bindings(store, plane):
            _grant(everywhere, binding, cluster_roles.get(binding.role, ()))
        in_namespace: dict[str, dict[Subject, Rules]] = {}
        for binding in rolesource.bindings(store, plane):
            rules = (
                cluster_roles.get(binding.role, ())
                if binding.of_cluster
                else roles.get((binding.namespace, binding.role), ())
            )
            _grant(in_namespace.setdefault(binding.namespace, {}), binding, rules)
        return PlaneRoles(cluster_roles, roles, everywhere, in_namespace)


def _aggregated(role: ClusterRole, others: list[ClusterRole]) -> Rules:
    """Its own rules, and those of the roles it selects; selection does not go deeper."""
    if not role.selectors:
        return role.rules
    taken = [
        rule
        for other in others
        if other.name != role.name and any(s.matches(other.labels) for s in role.selectors)
        for rule in other.rules
    ]
    return (*role.rules, *taken)


def _grant(place: dict[Subject, Rules], binding: Binding, rules: Rules) -> None:
    for subject in binding.subjects:
        place[subject] = (*place.get(subject, ()), *rules)
