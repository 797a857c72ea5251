"""The checks of hub namespaces and prefixes find what a deleted namespace leaves behind."""

from __future__ import annotations

import math
from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import CLUSTER_POLICY, DEPLOYMENT, IP_ALLOCATION, NAMESPACE
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.drivers.simulated.behaviors import SimulatedMachine
from datum_compute.drivers.simulated.driver import MachineTable
from datum_compute.store.journal import Change, ObjectKey
from testkit.sim.checks.convergence import i5_no_hub_namespace_outlives_its_source
from testkit.sim.checks.expected_state import ExpectedState
from testkit.sim.checks.prefixes import i2_prefix_outlives_its_machines
from testkit.sim.checks.projects import i6_hub_namespaces_name_their_project
from testkit.sim.checks.state import ClusterState
from testkit.sim.provider import Provider
from testkit.sim.run.world import run_scenario
from testkit.sim.scenario.faults import StopHost
from testkit.sim.scenario.operations import CreateWorkload, FleetingNamespace
from testkit.sim.scenario.scenario import Scenario, WorldLayout, host_of_cell

CORE = ExpectedState({}, ("alpha",), ("dfw",), frozenset())


def a_truth(providers: dict[Any, Provider] | None = None) -> ClusterState:
    return ClusterState(providers or {}, lambda: 0.0)


def put(state: ClusterState, plane: str, resource: str, name: str, **row: Any) -> None:
    metadata: JsonObject = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    body = encode({"metadata": metadata, **row})
    list(state.apply([Change(plane, 1, ObjectKey(resource, "", name), body)]))


def test_a_hub_namespace_without_its_source_is_found_on_hub_and_cell() -> None:
    for plane, resource in (
        ("hub", NAMESPACE.resource),
        ("hub", CLUSTER_POLICY.resource),
        ("cell/dfw", NAMESPACE.resource),
    ):
        state = a_truth()
        put(state, plane, resource, "ns-uid-team")
        assert "its source is gone" in i5_no_hub_namespace_outlives_its_source(state, CORE)
        put(state, "project/alpha", NAMESPACE.resource, "team")
        assert i5_no_hub_namespace_outlives_its_source(state, CORE) == ""


def test_a_hub_namespace_with_wrong_labels_is_found() -> None:
    state = a_truth()
    put(state, "project/alpha", NAMESPACE.resource, "team")
    wrong = {labels.UPSTREAM_CLUSTER: "cluster-alpha", labels.UPSTREAM_NAMESPACE: "other"}
    put_labelled(state, wrong)
    assert i6_hub_namespaces_name_their_project(state, CORE) == "", "no deployment uses it"
    key = ObjectKey(DEPLOYMENT.resource, "ns-uid-team", "web")
    body = encode({"metadata": {"name": "web", "uid": "u", "resourceVersion": "1"}})
    list(state.apply([Change("hub", 2, key, body)]))
    assert "alpha/team" in i6_hub_namespaces_name_their_project(state, CORE)
    put_labelled(state, {**wrong, labels.UPSTREAM_NAMESPACE: "team"})
    assert i6_hub_namespaces_name_their_project(state, CORE) == ""


def put_labelled(state: ClusterState, labelled: dict[str, str]) -> None:
    metadata = {"name": "ns-uid-team", "uid": "home", "resourceVersion": "1", "labels": labelled}
    key = ObjectKey(NAMESPACE.resource, "", "ns-uid-team")
    list(state.apply([Change("hub", 1, key, encode({"metadata": metadata}))]))


def test_releasing_a_prefix_with_the_address_of_a_machine_is_found() -> None:
    machine = SimulatedMachine(number=1, image="web:1", runs_from_s=0.0, addresses=["10.128.16.2"])
    provider = Provider(lambda: 0.0, machines=MachineTable({"ns/web-0/uid": machine}))
    state = a_truth({"cell/dfw": provider})
    for cidr, expected in (("10.128.16.0/20", "has 10.128.16.2"), ("10.128.32.0/20", "")):
        put(state, "platform", IP_ALLOCATION.resource, "a", spec={"cidr": cidr})
        gone = Change("platform", 2, ObjectKey(IP_ALLOCATION.resource, "", "a"), None)
        (step,) = state.apply([gone])
        found = i2_prefix_outlives_its_machines(state, step)
        assert (expected in found) if expected else found == ""


@pytest.mark.parametrize("for_s", [40.0, math.inf])
def test_a_namespace_is_deleted_only_after_its_unreachable_cell_is_back(for_s: float) -> None:
    """Until the cell is back, its machines may run on the quota of the namespace's claims."""
    layout = WorldLayout(processes="split", projects=("alpha",), cells=("dfw", "iad"))
    operations = (
        CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",)),
        FleetingNamespace(0.0, "alpha", "fleeting-0", ("DFW", "IAD"), 12.0),
    )
    faults = (StopHost(6.0, for_s, host_of_cell(layout, "iad")),)
    outcome = run_scenario(Scenario(7, layout, operations, faults, 60.0))
    is_gone = any(
        "project/alpha" in line and line.endswith("namespaces fleeting-0: deleted")
        for line in outcome.trace
    )
    assert is_gone == (for_s < math.inf)
