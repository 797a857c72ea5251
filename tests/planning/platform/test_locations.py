"""Readiness of locations by their cells, and availability of bindings that users created."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from datum_compute.api.conditions import Condition, ConditionStatus, Reason, find_condition
from datum_compute.api.karmada import Cluster
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta, OwnerReference
from datum_compute.api.networking.location import (
    Location,
    LocationBinding,
    LocationBindingSpec,
    LocationSpec,
    LocationStatus,
)
from datum_compute.api.planes import project_plane
from datum_compute.planning.plan import PatchStatus
from datum_compute.planning.platform.locations import (
    plan_availability,
    plan_location,
    same_availability,
)

NOW = "2026-01-01T00:00:00Z"
DFW = from_json(
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
    condition = {"type": "Ready", "status": ready, "reason": "Reported", "lastTransitionTime": NOW}
    return from_json(
        {
            "metadata": {"name": name, "labels": {TOPOLOGY_CITY: "DFW"}},
            "spec": {"taints": taints},
            "status": {"conditions": [condition] if ready else []},
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
def test_a_location_is_ready_while_a_reachable_cell_accepts_instances(
    cells: list[Cluster], verdict: tuple[str, str] | None
) -> None:
    actions = plan_location(DFW, cells, NOW).actions
    if verdict is None:
        assert actions == ()
        return
    (action,) = actions
    assert isinstance(action, PatchStatus)
    (condition,) = action.status["conditions"]
    assert (condition["status"], condition["reason"]) == verdict


def test_a_drain_changes_availability_and_a_heartbeat_does_not() -> None:
    assert same_availability(cell("a"), cell("a"))
    assert not same_availability(cell("a"), cell("a", drained=True))
    assert not same_availability(cell("a"), cell("a", "False"))
    assert not same_availability(None, cell("a"))


PLANE = project_plane("demo")
TOPOLOGY = {"topology.datum.net/city-code": "DFW"}
BINDING = LocationBinding(
    metadata=ObjectMeta(name="dfw", generation=1),
    spec=LocationBindingSpec(
        location_ref=LocalReference(name="dfw"),
        location_class_name="datum-managed",
        topology=TOPOLOGY,
    ),
)


def a_location(ready: ConditionStatus | None = None, reason: str = "CellUnreachable") -> Location:
    condition = Condition(
        type="Ready",
        status=ready or "Unknown",
        reason=reason,
        last_transition_time=NOW,
        message="x",
    )
    return Location(
        metadata=ObjectMeta(name="dfw"),
        spec=LocationSpec(location_class_name="datum-managed", topology=TOPOLOGY),
        status=LocationStatus(conditions=[condition] if ready else []),
    )


def availability(
    location: Location | None, *, single_cluster: bool = False
) -> tuple[str, str] | None:
    actions = plan_availability(PLANE, BINDING, location, NOW, single_cluster=single_cluster)
    if not actions:
        return None
    (action,) = actions
    assert isinstance(action, PatchStatus)
    (condition,) = action.status["conditions"]
    return condition["status"], condition["reason"]


@pytest.mark.parametrize(
    ("location", "verdict"),
    [
        (a_location("True"), ("True", "AllGatesOpen")),
        (a_location("False"), ("False", "LocationNotReady")),
        (a_location("Unknown"), ("False", "LocationNotReady")),
        (a_location("False", "CellDrained"), ("False", "CellDrained")),
        (a_location(), None),
        (None, ("False", "LocationNotFound")),
    ],
)
def test_a_binding_is_available_if_its_location_is_ready(
    location: Location | None, verdict: tuple[str, str] | None
) -> None:
    assert availability(location) == verdict


def test_a_single_cluster_serves_every_city() -> None:
    assert availability(a_location(), single_cluster=True) == ("True", "AllGatesOpen")
    assert availability(None, single_cluster=True) == ("False", "LocationNotFound")


def test_a_binding_of_an_entitlement_is_not_changed() -> None:
    owner = OwnerReference(
        api_version="services.miloapis.com/v1alpha1",
        kind="ServiceEntitlement",
        name="compute",
        uid="1",
        controller=True,
    )
    owned = replace(BINDING, metadata=replace(BINDING.metadata, owner_references=[owner]))
    assert plan_availability(PLANE, owned, a_location("True"), NOW, single_cluster=False) == []
    assert find_condition(BINDING.status.conditions, "Available") is None
