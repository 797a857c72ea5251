"""Who may take away a finalizer that stands for something of the platform's (admission/finalizers).

Like the rules about roles this asks who writes, so it lies here and not in the admission chain.
"""

from __future__ import annotations

from msgspec.structs import replace

from datum_compute.admission.rules.controller_owned import (
    RELEASE,
    guard_causes,
    released_guards,
    with_guards,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.call import Call
from datum_compute.server.verbs.prepare import Proposal


def with_kept_guards(
    authorizer: Authorizer, call: Call, sent: JsonObject, old: JsonObject
) -> JsonObject:
    """What a PUT replaces the object with."""
    kept = with_guards(call.kind, sent, old)
    return sent if kept is sent or _may_release(authorizer, call) else kept


def with_guard_rule(
    authorizer: Authorizer, call: Call, proposal: Proposal, old: JsonObject
) -> Proposal:
    released = released_guards(call.kind, proposal.obj, old)
    if not released or _may_release(authorizer, call):
        return proposal
    return replace(proposal, causes=(*proposal.causes, *guard_causes(call.kind, released)))


def _may_release(authorizer: Authorizer, call: Call) -> bool:
    route = call.route
    wanted = Attributes(RELEASE, call.kind.group, call.kind.plural, "", route.namespace, route.name)
    return authorizer.allows(call.user, call.plane, wanted)
