"""How the sizes of the platform plane reach the others."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.instancetype import (
    InstanceType,
    InstanceTypeLifecycle,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.plane import cell_plane, project_plane
from datum_compute.planning.plan import Create, Delete, Patch, Wait
from datum_compute.planning.platform.instance_types import plan_copy, plan_removal

CELL = cell_plane("dfw")


def a_type(phase: str = "Active", cpu: str = "1") -> InstanceType:
    lifecycle = InstanceTypeLifecycle(phase=phase, replacement_instance_type="other")  # type: ignore[arg-type]
    return InstanceType(
        metadata=ObjectMeta(name="small", uid="u", resource_version="3"),
        spec=InstanceTypeSpec(
            resources=InstanceTypeResources(cpu=cpu, memory="2Gi"), lifecycle=lifecycle
        ),
    )


@pytest.mark.parametrize("phase", ["Active", "Deprecated", "Disabled"])
def test_a_new_copy_is_active_whatever_the_original_is(phase: str) -> None:
    (create,) = plan_copy(CELL, a_type(phase), None)
    assert isinstance(create, Create)
    assert isinstance(create.object, InstanceType)
    assert create.object.spec.lifecycle.phase == "Active"


@pytest.mark.parametrize(
    ("original", "copy", "step"),
    [
        ("Disabled", "Active", "Deprecated"),
        ("Disabled", "Deprecated", "Disabled"),
        ("Deprecated", "Active", "Deprecated"),
    ],
)
def test_a_copy_follows_one_step_at_a_time(original: str, copy: str, step: str) -> None:
    (patch,) = plan_copy(CELL, a_type(original), a_type(copy))
    assert isinstance(patch, Patch)
    assert patch.patch["spec"]["lifecycle"]["phase"] == step


@pytest.mark.parametrize(("original", "copy"), [("Active", "Active"), ("Active", "Disabled")])
def test_a_copy_that_is_there_or_further_is_left_alone(original: str, copy: str) -> None:
    assert plan_copy(CELL, a_type(original), a_type(copy)) == []


def test_a_copy_of_another_size_is_made_again() -> None:
    (delete,) = plan_copy(CELL, a_type(cpu="2"), a_type(cpu="1"))
    assert isinstance(delete, Delete)
    leaving = a_type(cpu="1")
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026")
    (wait,) = plan_copy(CELL, a_type(cpu="2"), msgspec.structs.replace(leaving, metadata=metadata))
    assert isinstance(wait, Wait)


def test_a_copy_without_an_original_goes_from_projects_and_stays_on_cells() -> None:
    """Instances on the cell may still have that size."""
    project = project_plane("demo")
    (delete,) = plan_removal(project, a_type("Disabled"))
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid) == (project, "u")
    assert plan_removal(CELL, a_type("Disabled")) == []
    assert plan_removal(project, None) == []
