"""Nobody grants what they do not have.

Whoever writes a role must hold every permission in it, or the verb ``escalate`` on it; whoever
binds a role must hold every permission it has now, or the verb ``bind`` on it. A role that takes
up others by label can grow without a further write, so setting that up needs everything, or
``escalate``; and since labels decide what is taken up, changing them is checked like rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, ROLE, ROLE_BINDING
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import MASTERS
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.rbac_objects import rules_of
from datum_compute.server.access.rbac_rules import EVERYTHING, Rule, missing_permissions
from datum_compute.server.encoding.responses import forbidden, not_found
from datum_compute.server.routing import ResourceRequest
from datum_compute.store.records import Record

_ROLES = (ROLE.resource, CLUSTER_ROLE.resource)
_BINDINGS = (ROLE_BINDING.resource, CLUSTER_ROLE_BINDING.resource)
_SHOWN_MAX = 5


def check_grant(
    authorizer: Authorizer, call: ResourceRequest, new: JsonObject, old: Record | None
) -> None:
    """Raise Forbidden if this write would give somebody more than its author has."""
    resource = call.kind.resource
    if (resource not in _ROLES and resource not in _BINDINGS) or MASTERS in call.user.groups:
        return
    before: JsonObject = decode(old.body) if old is not None else {}
    if resource in _ROLES:
        _check_role(authorizer, call, new, before)
    else:
        _check_binding(authorizer, call, new, before)


def _check_role(
    authorizer: Authorizer, call: ResourceRequest, new: JsonObject, old: JsonObject
) -> None:
    parts = ("rules", "aggregationRule")
    labels = [obj.get("metadata", {}).get("labels") for obj in (new, old)]
    if old and all(new.get(p) == old.get(p) for p in parts) and labels[0] == labels[1]:
        return
    name = new["metadata"]["name"]
    if _has_verb(authorizer, call, "escalate", call.kind, name):
        return
    wanted: Sequence[Rule] = rules_of(new)
    if new.get("aggregationRule") and new["aggregationRule"] != old.get("aggregationRule"):
        wanted = EVERYTHING
    _check_held(authorizer, call, name, wanted)


def _check_binding(
    authorizer: Authorizer, call: ResourceRequest, new: JsonObject, old: JsonObject
) -> None:
    if old and all(new.get(part) == old.get(part) for part in ("subjects", "roleRef")):
        return
    reference = new["roleRef"]
    kind = CLUSTER_ROLE if reference["kind"] == CLUSTER_ROLE.kind else ROLE
    if _has_verb(authorizer, call, "bind", kind, reference["name"]):
        return
    known = authorizer.roles(call.plane)
    if known is None:
        return  # the plane is going; the write will not land
    found = (
        known.cluster_roles.get(reference["name"])
        if kind is CLUSTER_ROLE
        else known.roles.get((call.route.namespace, reference["name"]))
    )
    if found is None:
        # Bound now and written later it would hold what nobody has checked.
        raise not_found(kind, reference["name"])
    _check_held(authorizer, call, new["metadata"]["name"], found)


def _has_verb(
    authorizer: Authorizer, call: ResourceRequest, verb: str, kind: KindInfo[Any], name: str
) -> bool:
    wanted = Attributes(verb, kind.group, kind.plural, "", call.route.namespace, name)
    return authorizer.allows(call.user, call.plane, wanted)


def _check_held(
    authorizer: Authorizer, call: ResourceRequest, name: str, wanted: Sequence[Rule]
) -> None:
    held = authorizer.rules_of(call.user, call.plane, call.route.namespace)
    missing = missing_permissions(held, wanted, _SHOWN_MAX + 1)
    if missing:
        shown = ", ".join(missing[:_SHOWN_MAX]) + (", ..." if len(missing) > _SHOWN_MAX else "")
        why = (
            f'user "{call.user.name}" is attempting to grant RBAC permissions not currently held: '
            f"{shown}"
        )
        raise forbidden(call.kind, name, why)
