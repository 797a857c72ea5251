"""Cluster -> whether its cell answers. Probed, because a silent cell sends no events."""

from __future__ import annotations

from datum_compute.api.cluster import ClusterStatus
from datum_compute.api.conditions import FALSE, TRUE, Verdict, decided, with_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLUSTER, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.objects import plan_status
from datum_compute.runtime.controller import Controller, for_
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View

PROBE_S = 10.0


async def reconcile(context: Context, key: Key) -> Outcome:
    cluster = context.planes.need(key.plane).read(CLUSTER).get(key.ref)
    if cluster is None:
        return Done()
    verdict = await _probed(context.planes.cell(key.ref.name))
    ready = decided("Ready", verdict, generation=cluster.metadata.generation, now=context.now())
    status = ClusterStatus(
        conditions=with_condition(cluster.status.conditions, ready),
        kubernetes_version=cluster.status.kubernetes_version,
    )
    plan = Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s=PROBE_S)
    return await carry_out(context.planes, plan)


async def _probed(cell: View | None) -> Verdict:
    if cell is None:
        return Verdict(FALSE, "ClusterNotReachable", "the cell is not connected")
    try:
        await cell.client.get(NAMESPACE, Ref("", "default"))
    except (ApiError, Unreachable) as error:
        return Verdict(FALSE, "ClusterNotReachable", str(error))
    return Verdict(TRUE, "ClusterReady", "the cell answers")


def _by_cell(key: Key) -> str:
    return key.ref.name


CONTROLLER = Controller(
    name="cluster",
    role="hub",
    reconcile=reconcile,
    edges=(for_(CLUSTER),),
    lane=_by_cell,  # one cell that never answers holds up no other
)
