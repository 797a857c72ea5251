"""Decides whether a user may do something on a plane: reachable planes, RBAC, rules for cells.

A decision does not depend on whether the plane or the object exists. A user therefore cannot learn
what exists on a plane that the user may not reach.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from datum_compute.api.errors import Forbidden
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import MASTERS, User
from datum_compute.server.access.cell_authorizer import CellAuthorizer
from datum_compute.server.access.rbac import PlaneRoles, RbacCache
from datum_compute.server.access.rbac_rules import EVERYTHING, Rule
from datum_compute.store.store import Store


class Authorizer:
    """Calls ``on_change`` with each plane on which a user may have lost permissions.

    Custom kinds in ``protected_groups``, the API groups of the platform, get no roles.
    """

    def __init__(
        self,
        store: Store,
        protected_groups: Collection[str],
        on_change: Callable[[PlaneName], None],
    ) -> None:
        self._rbac = RbacCache(store, protected_groups, on_change)
        self.cells = CellAuthorizer(store, on_change)

    def check(self, user: User, plane: PlaneName, attributes: Attributes) -> None:
        """Raise Forbidden unless the user may reach the plane and do this there."""
        if not user.may_reach(plane):
            raise forbidden_error(user, attributes, f'the user has no access to plane "{plane}"')
        if MASTERS in user.groups:
            return
        roles = self._rbac.get(plane)
        if roles is None or not roles.allows(user, attributes):
            raise forbidden_error(user, attributes)
        reason = self.cells.deny_reason(user, plane, attributes)
        if reason:
            raise forbidden_error(user, attributes, reason)

    def allows(
        self, user: User, plane: PlaneName, attributes: Attributes, *, cache: bool = True
    ) -> bool:
        """Return True if roles allow this. Pass ``cache=False`` if the user or the attributes come
        from the body of a request."""
        if MASTERS in user.groups:
            return True
        roles = self._rbac.get(plane)
        allowed = roles is not None and roles.allows(user, attributes, cache=cache)
        return allowed and not self.cells.deny_reason(user, plane, attributes)

    def rules_of(self, user: User, plane: PlaneName, namespace: str) -> tuple[Rule, ...]:
        if MASTERS in user.groups:
            return EVERYTHING
        roles = self._rbac.get(plane)
        return roles.rules_of(user, namespace) if roles is not None else ()

    def roles(self, plane: PlaneName) -> PlaneRoles | None:
        return self._rbac.get(plane)


def forbidden_error(user: User, attributes: Attributes, reason: str = "") -> Forbidden:
    """Return the 403 error, in the words of kube-apiserver."""
    suffix = f": {reason}" if reason else ""
    verb = attributes.verb
    if attributes.path:
        return Forbidden(
            f'forbidden: User "{user.name}" cannot {verb} path "{attributes.path}"{suffix}'
        )
    group, resource = attributes.group, attributes.resource
    kind = f"{resource}.{group}" if group else resource
    subject = f'{kind} "{attributes.name}"' if attributes.name else kind
    namespace = attributes.namespace
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    return Forbidden(
        f'{subject} is forbidden: User "{user.name}" cannot {verb} resource '
        f'"{attributes.full_resource}" in API group "{group}" {scope}{suffix}',
        name=attributes.name,
        group=group,
        kind=resource,
    )
