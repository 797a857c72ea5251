"""What a user may do: what the roles of the plane grant it, on the planes it may reach.

The answer does not depend on whether the plane or the object exists, so that nobody can find
out what lies on a plane they may not reach.
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
    """``on_change`` hears of each plane whose grants may have changed."""

    def __init__(
        self,
        store: Store,
        protected_groups: Collection[str],
        on_change: Callable[[PlaneName], None],
    ) -> None:
        self._book = RbacCache(store, protected_groups, on_change)
        self.slices = CellAuthorizer(store, on_change)

    def check(self, user: User, plane: PlaneName, wanted: Attributes) -> None:
        """Raise unless the user may reach the plane and do what it wants there."""
        if not user.may_reach(plane):
            raise refusal(user, wanted, f'the user has no access to plane "{plane}"')
        if MASTERS in user.groups:
            return
        roles = self._book.of(plane)
        if roles is None or not roles.allows(user, wanted):
            raise refusal(user, wanted)
        outside = self.slices.refusal(user, plane, wanted)
        if outside:
            raise refusal(user, wanted, outside)

    def allows(
        self, user: User, plane: PlaneName, wanted: Attributes, *, cache: bool = True
    ) -> bool:
        """Pass ``cache=False`` for users and attributes from the body of a request."""
        if MASTERS in user.groups:
            return True
        roles = self._book.of(plane)
        allowed = roles is not None and roles.allows(user, wanted, cache=cache)
        return allowed and not self.slices.refusal(user, plane, wanted)

    def rules_of(self, user: User, plane: PlaneName, namespace: str) -> tuple[Rule, ...]:
        if MASTERS in user.groups:
            return EVERYTHING
        roles = self._book.of(plane)
        return roles.rules_of(user, namespace) if roles is not None else ()

    def roles(self, plane: PlaneName) -> PlaneRoles | None:
        return self._book.of(plane)


def refusal(user: User, wanted: Attributes, why: str = "") -> Forbidden:
    """The words Kubernetes clients know."""
    reason = f": {why}" if why else ""
    if wanted.path:
        return Forbidden(
            f'forbidden: User "{user.name}" cannot {wanted.verb} path "{wanted.path}"{reason}'
        )
    kind = f"{wanted.resource}.{wanted.group}" if wanted.group else wanted.resource
    subject = f'{kind} "{wanted.name}"' if wanted.name else kind
    where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
    return Forbidden(
        f'{subject} is forbidden: User "{user.name}" cannot {wanted.verb} resource '
        f'"{wanted.full_resource}" in API group "{wanted.group}" {where}{reason}',
        name=wanted.name,
        group=wanted.group,
        kind=wanted.resource,
    )
