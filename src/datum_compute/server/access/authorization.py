"""Decides whether a user may do something on a plane: reachable planes, RBAC, rules for cells.

A decision does not depend on whether the plane or the object exists. A user therefore cannot learn
what exists on a plane that the user may not reach.

Writes of roles and bindings are checked as well: a user cannot grant permissions that the user
lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from datum_compute.api.errors import Forbidden
from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from datum_compute.api.membership import CELLS_GROUP
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import MASTERS, User
from datum_compute.server.access.cell_authorizer import CellAuthorizer
from datum_compute.server.access.rbac import PlaneRoles, RbacCache
from datum_compute.server.access.rbac_objects import rules_of
from datum_compute.server.access.rbac_rules import EVERYTHING, Rule, missing_permissions
from datum_compute.server.encoding.responses import forbidden, not_found
from datum_compute.store.records import Record
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
        if CELLS_GROUP in user.groups:
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
        if roles is None or not roles.allows(user, attributes, cache=cache):
            return False
        return CELLS_GROUP not in user.groups or not self.cells.deny_reason(user, plane, attributes)

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


# --- Checks of the object that a write stores: users cannot grant permissions that they lack
# To write a role, a user must hold every permission in it, or the verb ``escalate`` on the role. To
# write a binding, a user must hold every permission of the role, or the verb ``bind`` on the role.
#
# An aggregated ClusterRole takes the rules of other roles by label, so it can grow without a
# further write. Setting an aggregation rule therefore requires all permissions, or ``escalate``.
# Labels determine which roles are taken, so a change of labels is checked like a change of rules.
#
# A cell may only write objects of its own workloads (``cell_authorizer.py``).


_ROLES = (ROLE.resource, CLUSTER_ROLE.resource)
_BINDINGS = (ROLE_BINDING.resource, CLUSTER_ROLE_BINDING.resource)
_SHOWN_MAX = 5


class ObjectWrite(msgspec.Struct, frozen=True):
    """An object that a user is about to store on a plane, and the record that it replaces."""

    user: User
    plane: PlaneName
    kind: KindInfo[Any]
    obj: JsonObject
    old: Record | None

    @property
    def name(self) -> str:
        name: str = self.obj["metadata"]["name"]
        return name

    @property
    def namespace(self) -> str:
        namespace: str = self.obj["metadata"].get("namespace", "")
        return namespace


def check_write(authorizer: Authorizer, write: ObjectWrite) -> None:
    """Raise Forbidden if the user may not store this object."""
    groups, resource = write.user.groups, write.kind.resource
    if CELLS_GROUP in groups:
        authorizer.cells.check_written(write.user, write.plane, write.kind, write.obj)
    if MASTERS in groups:
        return
    if resource in _ROLES:
        _check_role(authorizer, write)
    elif resource in _BINDINGS:
        _check_binding(authorizer, write)


def _check_role(authorizer: Authorizer, write: ObjectWrite) -> None:
    new, old = write.obj, _decode_old(write)
    if old and _has_same_rules(new, old):
        return
    if _has_verb(authorizer, write, "escalate", write.kind, write.name):
        return
    granted: Sequence[Rule] = rules_of(new)
    if new.get("aggregationRule") and new["aggregationRule"] != old.get("aggregationRule"):
        granted = EVERYTHING
    _check_no_escalation(authorizer, write, granted)


def _has_same_rules(new: JsonObject, old: JsonObject) -> bool:
    if any(new.get(field) != old.get(field) for field in ("rules", "aggregationRule")):
        return False
    labels: bool = new["metadata"].get("labels") == old["metadata"].get("labels")
    return labels


def _check_binding(authorizer: Authorizer, write: ObjectWrite) -> None:
    new, old = write.obj, _decode_old(write)
    if old and all(new.get(field) == old.get(field) for field in ("subjects", "roleRef")):
        return
    reference = new["roleRef"]
    kind = CLUSTER_ROLE if reference["kind"] == CLUSTER_ROLE.kind else ROLE
    if _has_verb(authorizer, write, "bind", kind, reference["name"]):
        return
    roles = authorizer.roles(write.plane)
    if roles is None:
        return  # the plane is being deleted; the store rejects the write
    if kind is CLUSTER_ROLE:
        granted = roles.cluster_roles.get(reference["name"])
    else:
        granted = roles.roles.get((write.namespace, reference["name"]))
    if granted is None:
        # A role that is created after the binding would grant permissions without a check.
        raise not_found(kind, reference["name"])
    _check_no_escalation(authorizer, write, granted)


def _decode_old(write: ObjectWrite) -> JsonObject:
    old: JsonObject = decode(write.old.body) if write.old is not None else {}
    return old


def _has_verb(
    authorizer: Authorizer, write: ObjectWrite, verb: str, kind: KindInfo[Any], name: str
) -> bool:
    attributes = Attributes(verb, kind.group, kind.plural, "", write.namespace, name)
    return authorizer.allows(write.user, write.plane, attributes)


def _check_no_escalation(
    authorizer: Authorizer, write: ObjectWrite, granted: Sequence[Rule]
) -> None:
    held = authorizer.rules_of(write.user, write.plane, write.namespace)
    missing = missing_permissions(held, granted, _SHOWN_MAX + 1)
    if missing:
        listed = ", ".join(missing[:_SHOWN_MAX]) + (", ..." if len(missing) > _SHOWN_MAX else "")
        why = (
            f'user "{write.user.name}" is attempting to grant RBAC permissions not currently held: '
            f"{listed}"
        )
        raise forbidden(write.kind, write.name, why)
