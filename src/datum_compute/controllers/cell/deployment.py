"""WorkloadDeployment on its cell -> ordered Instances, and their counts."""

from __future__ import annotations

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.deployment import plan_deployment
from datum_compute.runtime.controller import Controller, owns
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    deployment = view.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        return Done()
    instances = view.read(INSTANCE).owned_by(deployment.metadata.uid)
    plan = plan_deployment(key.plane, deployment, instances, context.now())
    return await carry_out(context.planes, plan)


CONTROLLER = Controller(
    name="deployment",
    role="cell",
    kind=DEPLOYMENT,
    reconcile=reconcile,
    watches=(owns("cell", INSTANCE, DEPLOYMENT),),
)
