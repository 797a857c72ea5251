"""Organization -> its namespace, and that it is ready."""

from __future__ import annotations

from datum_compute.api.kinds import NAMESPACE, ORGANIZATION
from datum_compute.api.meta import Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.organizations import organization_namespace, plan_organization
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, owns


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    organization = view.read(ORGANIZATION).get(key.ref)
    if organization is None:
        return Done()
    namespace = view.read(NAMESPACE).get(Ref("", organization_namespace(key.ref.name)))
    plan = plan_organization(organization, namespace, context.now())
    return await carry_out(context.planes, plan)


CONTROLLER = Controller(
    name="organization",
    role="platform",
    reconcile=reconcile,
    edges=(for_(ORGANIZATION), owns(NAMESPACE)),
    workers=1,
)
