"""Whether a city can be used, by what is known of its cells."""

from __future__ import annotations

import pytest

from datum_compute.api.cluster import Cluster
from datum_compute.api.codec import typed
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.location import Location
from datum_compute.api.reasons import Reason
from datum_compute.planning.plan import PatchStatus
from datum_compute.planning.platform.locations import are_equally_open, plan_location

NOW = "2026-01-01T00:00:00Z"
DFW = typed(
    {
        "metadata": {"name": "dfw", "generation": 1},
        "spec": {
            "locationClassName": "datum-managed",
            "topology": {"topology.datum.net/city-code": "DFW"},
        },
    },
    Location,
)


def cell(name: str, ready: str = "True", *, drained: bool = False) -> Cluster:
    taints = [{"key": "compute.datumapis.com/drained", "effect": "NoSchedule"}] if drained else []
    said = {"type": "Ready", "status": ready, "reason": "Told", "lastTransitionTime": NOW}
    return typed(
        {
            "metadata": {"name": name, "labels": {TOPOLOGY_CITY: "DFW"}},
            "spec": {"taints": taints},
            "status": {"conditions": [said] if ready else []},
        },
        Cluster,
    )


@pytest.mark.parametrize(
    ("cells", "verdict"),
    [
        ([cell("a")], ("True", "ServedByCell")),
        ([cell("a", drained=True)], ("False", Reason.CELL_DRAINED)),
        ([cell("a", drained=True), cell("b")], ("True", "ServedByCell")),
        ([cell("a", "False", drained=True)], ("False", Reason.CELL_UNREACHABLE)),
        ([cell("a", "False")], ("False", Reason.CELL_UNREACHABLE)),
        ([cell("a", "")], None),
        ([], ("False", "NoCell")),
    ],
)
def test_a_city_is_ready_while_a_cell_answers_and_takes_new_work(
    cells: list[Cluster], verdict: tuple[str, str] | None
) -> None:
    actions = plan_location(DFW, cells, NOW).actions
    if verdict is None:
        assert actions == ()
        return
    (action,) = actions
    assert isinstance(action, PatchStatus)
    (said,) = action.status["conditions"]
    assert (said["status"], said["reason"]) == verdict


def test_a_drain_is_news_and_a_heartbeat_is_not() -> None:
    assert are_equally_open(cell("a"), cell("a"))
    assert not are_equally_open(cell("a"), cell("a", drained=True))
    assert not are_equally_open(cell("a"), cell("a", "False"))
    assert not are_equally_open(None, cell("a"))
