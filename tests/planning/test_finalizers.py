"""Finalizers: added before there is work, released after it, and never over somebody's head."""

from __future__ import annotations

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta import ObjectMeta, owner_reference
from datum_compute.api.plane import project_plane
from datum_compute.api.workload import Workload, WorkloadSpec
from datum_compute.planning.plan import Patch, Wait, add_finalizer, drop_finalizer
from testkit.builders import a_template

PLANE = project_plane("p")
OURS, THEIRS = "compute.datumapis.com/ours", "example.com/theirs"


def a_workload(*finalizers: str, terminating: bool = False) -> Workload:
    return Workload(
        metadata=ObjectMeta(
            name="web",
            namespace="default",
            uid="u-1",
            resource_version="7",
            finalizers=list(finalizers),
            deletion_timestamp="2026-01-01T00:00:00Z" if terminating else None,
        ),
        spec=WorkloadSpec(template=a_template(), placements=[]),
    )


def test_a_finalizer_is_added_once_beside_those_of_others() -> None:
    (patch,) = add_finalizer(PLANE, WORKLOAD, a_workload(THEIRS), OURS)
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["finalizers"] == [THEIRS, OURS]
    assert add_finalizer(PLANE, WORKLOAD, a_workload(OURS), OURS) == []


def test_an_object_that_is_being_deleted_gets_none_any_more() -> None:
    assert add_finalizer(PLANE, WORKLOAD, a_workload(terminating=True), OURS) == []


def test_releasing_keeps_those_of_others_and_the_version_it_was_decided_on() -> None:
    (patch,) = drop_finalizer(PLANE, WORKLOAD, a_workload(THEIRS, OURS, terminating=True), OURS)
    assert isinstance(patch, Patch)
    assert patch.patch == {"metadata": {"resourceVersion": "7", "finalizers": [THEIRS]}}
    assert drop_finalizer(PLANE, WORKLOAD, a_workload(THEIRS), OURS) == []


def test_unfinished_work_is_never_released() -> None:
    kept = a_workload(OURS, terminating=True)
    (wait,) = drop_finalizer(PLANE, WORKLOAD, kept, OURS, unfinished=["Instance web-0"])
    assert isinstance(wait, Wait)
    assert "Instance web-0" in wait.reason


def test_an_owner_is_named_by_uid_and_controls() -> None:
    reference = owner_reference(a_workload(), WORKLOAD)
    assert (reference.kind, reference.name, reference.uid) == ("Workload", "web", "u-1")
    assert reference.controller
    assert reference.block_owner_deletion
