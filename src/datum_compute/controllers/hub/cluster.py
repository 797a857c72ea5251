"""Cluster -> whether its cell answers. Probed, because a silent cell sends no events.

One answer that is missing says little: a cell that answered before is called silent only when it
has not answered for GRACE_S, and then from the first moment of that.
"""

from __future__ import annotations

from datum_compute.api.cluster import ClusterStatus
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Verdict,
    decided,
    is_true,
    with_condition,
)
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLUSTER, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB
from datum_compute.api.timestamps import timestamp
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.objects import plan_status
from datum_compute.runtime.controller import Controller, for_
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome
from datum_compute.runtime.view import View

PROBE_S = 10.0
GRACE_S = 30.0


async def reconcile(context: Context, key: Key) -> Outcome:
    cluster = context.planes.need(key.plane).read(CLUSTER).get(key.ref)
    if cluster is None:
        return Done()
    verdict = await _probed(context.planes.cell(key.ref.name))
    silent_s = _silent_s(context, key.ref.name, verdict)
    if 0 < silent_s < GRACE_S and is_true(cluster.status.conditions, "Ready"):
        return Later(min(PROBE_S, GRACE_S - silent_s))
    now = timestamp(context.unix_s() - silent_s)
    ready = decided("Ready", verdict, generation=cluster.metadata.generation, now=now)
    status = ClusterStatus(
        conditions=with_condition(cluster.status.conditions, ready),
        kubernetes_version=cluster.status.kubernetes_version,
    )
    plan = Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s=PROBE_S)
    return await carry_out(context.planes, plan)


def _silent_s(context: Context, cell: str, verdict: Verdict) -> float:
    """For how long it has not answered; 0 if it just has."""
    if verdict.status == TRUE:
        context.silent_since_s.pop(cell, None)
        return 0.0
    now = context.unix_s()
    # A moment at least, so that the first failure is one.
    return max(0.001, now - context.silent_since_s.setdefault(cell, now))


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
