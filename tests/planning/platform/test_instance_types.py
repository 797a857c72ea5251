"""Status of instance types, the condition on workloads, and copies on other planes."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.instance_type import (
    InstanceType,
    InstanceTypeLifecycle,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.conditions import Condition
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import PLATFORM, cell_plane, project_plane
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.platform.instance_types import (
    plan_copy,
    plan_instance_type,
    plan_removal,
    type_status,
    with_size_notice,
)

NOW, EARLIER = "2026-11-15T10:00:00Z", "2026-10-01T00:00:00Z"


def a_type(name: str, phase: str = "Active", instead: str = "") -> InstanceType:
    lifecycle = InstanceTypeLifecycle(phase=phase, replacement_instance_type=instead)  # type: ignore[arg-type]
    resources = InstanceTypeResources(cpu="1", memory="2Gi")
    return InstanceType(
        metadata=ObjectMeta(name=name, generation=3),
        spec=InstanceTypeSpec(resources=resources, lifecycle=lifecycle),
    )


@pytest.mark.parametrize(
    ("phase", "others", "reason"),
    [
        ("Active", (), "Valid"),
        ("Deprecated", (a_type("new"),), "Valid"),
        ("Deprecated", (a_type("new", "Deprecated", "newer"),), "Valid"),
        ("Deprecated", (a_type("new", "Disabled", "newer"),), "ReplacementDisabled"),
        ("Disabled", (a_type("other"),), "ReplacementNotFound"),
    ],
)
def test_ready_depends_on_the_replacement(
    phase: str, others: tuple[InstanceType, ...], reason: str
) -> None:
    replacement = next((t for t in others if t.metadata.name == "new"), None)
    status = type_status(a_type("old", phase, "new"), replacement, NOW)
    (ready,) = status.conditions
    assert (ready.type, ready.reason) == ("Ready", reason)
    assert ready.status == ("True" if reason == "Valid" else "False")
    assert status.observed_generation == 3


def test_the_deprecation_time_is_kept_and_absent_for_active_types() -> None:
    deprecated = a_type("old", "Deprecated", "new")
    first = type_status(deprecated, None, EARLIER)
    assert first.deprecated_at == EARLIER
    later = msgspec.structs.replace(a_type("old", "Disabled", "new"), status=first)
    assert type_status(later, None, NOW).deprecated_at == EARLIER
    assert type_status(a_type("old"), None, NOW).deprecated_at is None


def test_a_second_reconcile_changes_nothing() -> None:
    once = type_status(a_type("old", "Deprecated", "new"), None, EARLIER)
    again = msgspec.structs.replace(a_type("old", "Deprecated", "new"), status=once)
    assert type_status(again, None, NOW) == once


def test_a_status_is_written_once_and_not_for_a_type_that_is_being_removed() -> None:
    deprecated = a_type("old", "Deprecated", "new")
    (write,) = plan_instance_type(PLATFORM, deprecated, a_type("new"), NOW).actions
    assert isinstance(write, PatchStatus)
    status = type_status(deprecated, a_type("new"), NOW)
    reported = msgspec.structs.replace(deprecated, status=status)
    assert plan_instance_type(PLATFORM, reported, a_type("new"), NOW).is_settled
    metadata = msgspec.structs.replace(deprecated.metadata, deletion_timestamp=NOW)
    removed = msgspec.structs.replace(deprecated, metadata=metadata)
    assert plan_instance_type(PLATFORM, removed, a_type("new"), NOW).is_settled


def with_notice(phase: str, before: list[Condition] | None = None) -> list[Condition]:
    used = a_type("old", phase, "new")
    return with_size_notice(before or [], used, generation=1, now=NOW)


def test_a_workload_has_a_condition_while_its_type_is_not_active() -> None:
    other = Condition(type="Available", status="True", reason="Fine")
    assert with_notice("Active", [other]) == [other]
    (kept, notice) = deprecated = with_notice("Deprecated", [other])
    assert kept == other
    assert (notice.type, notice.status) == ("InstanceTypeDeprecated", "True")
    assert notice.message == "Instance type old is deprecated; use new instead"
    assert with_notice("Deprecated", deprecated) == deprecated
    assert [c.type for c in with_notice("Disabled", deprecated)] == [
        "Available",
        "InstanceTypeDisabled",
    ]
    assert with_notice("Active", deprecated) == [other]


def test_the_condition_stays_when_the_type_is_deleted() -> None:
    disabled = with_notice("Disabled")
    assert with_size_notice(disabled, None, generation=1, now=NOW) == disabled
    assert with_size_notice([], None, generation=1, now=NOW) == []


CELL = cell_plane("dfw")


def a_type_catalogue(phase: str = "Active", cpu: str = "1") -> InstanceType:
    lifecycle = InstanceTypeLifecycle(phase=phase, replacement_instance_type="other")  # type: ignore[arg-type]
    return InstanceType(
        metadata=ObjectMeta(name="small", uid="u", resource_version="3"),
        spec=InstanceTypeSpec(
            resources=InstanceTypeResources(cpu=cpu, memory="2Gi"), lifecycle=lifecycle
        ),
    )


@pytest.mark.parametrize("phase", ["Active", "Deprecated", "Disabled"])
def test_a_new_copy_is_active_whatever_the_original_is(phase: str) -> None:
    (create,) = plan_copy(CELL, a_type_catalogue(phase), None)
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
    (patch,) = plan_copy(CELL, a_type_catalogue(original), a_type_catalogue(copy))
    assert isinstance(patch, Patch)
    assert patch.patch["spec"]["lifecycle"]["phase"] == step


@pytest.mark.parametrize(("original", "copy"), [("Active", "Active"), ("Active", "Disabled")])
def test_a_copy_that_is_equal_or_ahead_is_unchanged(original: str, copy: str) -> None:
    assert plan_copy(CELL, a_type_catalogue(original), a_type_catalogue(copy)) == []


def test_a_copy_of_another_size_is_recreated() -> None:
    (delete,) = plan_copy(CELL, a_type_catalogue(cpu="2"), a_type_catalogue(cpu="1"))
    assert isinstance(delete, Delete)
    leaving = a_type_catalogue(cpu="1")
    metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026")
    (wait,) = plan_copy(
        CELL, a_type_catalogue(cpu="2"), msgspec.structs.replace(leaving, metadata=metadata)
    )
    assert isinstance(wait, Wait)


def test_a_copy_without_original_is_deleted_on_projects_and_kept_on_cells() -> None:
    """Instances on the cell may still have that size."""
    project = project_plane("demo")
    (delete,) = plan_removal(project, a_type_catalogue("Disabled"))
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid) == (project, "u")
    assert plan_removal(CELL, a_type_catalogue("Disabled")) == []
    assert plan_removal(project, None) == []


@pytest.mark.parametrize(("copy", "step"), [("Active", "Deprecated"), ("Deprecated", "Disabled")])
def test_a_copy_without_original_advances_to_disabled_before_it_is_deleted(
    copy: str, step: str
) -> None:
    (patch,) = plan_removal(project_plane("demo"), a_type_catalogue(copy))
    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"lifecycle": {"phase": step}}
    assert plan_removal(CELL, a_type_catalogue(copy)) == []


def test_a_condition_does_not_recommend_an_unknown_replacement() -> None:
    (patch,) = plan_removal(project_plane("demo"), a_type("old"))
    assert isinstance(patch, Patch)
    unknown = patch.patch["spec"]["lifecycle"]["replacementInstanceType"]
    used = a_type("old", "Deprecated", unknown)
    (notice,) = with_size_notice([], used, generation=1, now=NOW)
    assert notice.message == "Instance type old is deprecated"
