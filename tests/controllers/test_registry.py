"""Which controllers run in which deployment mode."""

from __future__ import annotations

from datum_compute.controllers import registry
from datum_compute.controllers.context import FEDERATED, SINGLE_CLUSTER

EVERY_MODE = (*registry.MANAGEMENT, *registry.CELL)


def test_controllers_of_the_hub_and_of_copies_do_not_run_in_a_single_cluster() -> None:
    assert {c.name for c in EVERY_MODE if not registry.runs_in(c, SINGLE_CLUSTER)} == {
        "federator",
        "policy",
        "left-claim",
        "orphaned-claim",
        "projector",
        "quarantine",
        "catalogue",
        "location",
        "referenceddata",
        "companion-configmaps",
        "companion-secrets",
        "writeback",
    }


def test_every_controller_runs_when_planes_are_federated() -> None:
    assert [c.name for c in EVERY_MODE if not registry.runs_in(c, FEDERATED)] == []


def test_a_single_cluster_runs_one_location_binding_controller() -> None:
    names = [controller.name for controller in registry.single_cluster("default")]
    assert names.count("locationbinding") == 1
    assert len(names) == len(set(names))
