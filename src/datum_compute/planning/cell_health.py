"""Conditions of a Cluster: Ready from probes of its cell, Serving from its city and its taints.

- A cell that answers is Ready. A cell that was Ready becomes not ready only after it has been
  unreachable for `grace_s`. The transition time is then the start of the first failed probe.
- A cell that never answered is not ready from its first failed probe.
- Serving is omitted while it is true and was never set, so that most Clusters do not have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api.cluster import Cluster
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    is_true,
    with_condition,
)
from datum_compute.api.kinds import CLUSTER
from datum_compute.api.plane import HUB
from datum_compute.api.timestamps import timestamp
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation.cells import serving
from datum_compute.planning.plan import Plan

READY = "Ready"
SERVING = "Serving"

REACHABLE = Verdict(TRUE, "ClusterReady", "the cell answers")


def unreachable(message: str) -> Verdict:
    return Verdict(FALSE, "ClusterNotReachable", message)


@dataclass(frozen=True, slots=True)
class CellProbe:
    """The last probe of a cell. ``unreachable_s`` is how long probes have failed, 0 if it
    succeeded. Probes are repeated after ``interval_s``."""

    result: Verdict
    unreachable_s: float
    interval_s: float
    grace_s: float


def plan_cell_health(
    cluster: Cluster, same_city: Sequence[Cluster], probe: CellProbe, unix_s: float
) -> Plan:
    """Plan the status of the Cluster, and the time of the next probe.

    ``same_city`` are the other clusters of the city.
    """
    conditions: Sequence[Condition] = cluster.status.conditions
    requeue_after_s = probe.interval_s
    if 0 < probe.unreachable_s < probe.grace_s and is_true(conditions, READY):
        requeue_after_s = min(probe.interval_s, probe.grace_s - probe.unreachable_s)
    else:
        changed_at = timestamp(unix_s - probe.unreachable_s)
        generation = cluster.metadata.generation
        ready = decided(READY, probe.result, generation=generation, now=changed_at)
        conditions = with_condition(conditions, ready)
    conditions = _with_serving(cluster, same_city, conditions, timestamp(unix_s))
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    return Plan(tuple(plan_status(HUB, CLUSTER, cluster, status)), requeue_after_s)


def _with_serving(
    cluster: Cluster, same_city: Sequence[Cluster], conditions: Sequence[Condition], now: str
) -> list[Condition]:
    verdict = serving(cluster, same_city)
    if verdict.status == TRUE and find_condition(conditions, SERVING) is None:
        return list(conditions)
    condition = decided(SERVING, verdict, generation=cluster.metadata.generation, now=now)
    return with_condition(conditions, condition)
