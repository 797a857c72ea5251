"""Cell that has left -> the quota that its instances held is free again, in every project.

The key is the name of a Cluster, which need not be there. That it is not is asked of the hub
itself: a Cluster that only our view lacks is no reason to take anything from a cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import CLAIM, CLUSTER
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, plane_role
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.leftclaims import plan_left_claims
from datum_compute.runtime.controller import Controller, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    hub, cell = context.planes.hub, key.ref.name
    if hub.read(CLUSTER).get(key.ref) is not None:
        return Done()
    projects = [p for p in context.planes.engaged() if plane_role(p) == "project"]
    actions = [
        action
        for project in projects
        for action in plan_left_claims(
            project,
            cell,
            context.planes.need(project).read(CLAIM).labelled(labels.SOURCE_CLUSTER, cell),
        ).actions
    ]
    if actions and await hub.live(CLUSTER, key.ref) is None:
        return await carry_out(context.planes, Plan(tuple(actions)))
    return Done()


def from_cluster(view: View, change: Change[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(view.plane, Ref("", change.latest.metadata.name))


def from_claim(_view: View, change: Change[Any]) -> Iterable[Key]:
    """One that is new to us may be of a cell that left while nobody looked; one that is being
    deleted may wait for it."""
    claim = change.new
    if claim is None or (change.old is not None and not claim.is_terminating):
        return
    if cell := claim.metadata.labels.get(labels.SOURCE_CLUSTER):
        yield Key(HUB, Ref("", cell))


CONTROLLER = Controller(
    name="left-claim",
    role="hub",
    reconcile=reconcile,
    edges=(watches(CLUSTER, from_cluster), watches(CLAIM, from_claim, on="project")),
    finalizers=(labels.CLAIM_FINALIZER,),
)
