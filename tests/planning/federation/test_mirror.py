"""Copies on other planes: their content, and when they are written, awaited or deleted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance, InstanceStatus
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, INSTANCE
from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from datum_compute.api.planes import HUB
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    is_waiting,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Wait
from testkit.builders import NOW, a_deployment, an_instance

OWNER = owner_reference(a_deployment(), DEPLOYMENT)
SOURCE = an_instance(0)


def with_metadata(instance: Instance, **changed: Any) -> Instance:
    metadata = msgspec.structs.replace(instance.metadata, **changed)
    return msgspec.structs.replace(instance, metadata=metadata)


def the_copy(**changed: Any) -> Instance:
    """Return the copy of SOURCE as its plane stores it."""
    copy = desired_copy(SOURCE, "ns-u", carry=Marks(), mark=Marks({"of": "dfw"}), owner=OWNER)
    return with_metadata(copy, **{"uid": "copy", "resource_version": "4", **changed})


def test_a_copy_has_carried_values_and_marks_and_no_metadata_of_the_plane_of_its_source() -> None:
    source = with_metadata(SOURCE, uid="s", resource_version="9", finalizers=["example.com/held"])
    carry = Marks({"app": "web", "of": "edited"}, {"team": "a"})
    copy = desired_copy(source, "ns-u", carry=carry, mark=Marks({"of": "dfw"}, {"note": "x"}))
    assert copy.metadata == ObjectMeta(
        name=source.metadata.name,
        namespace="ns-u",
        labels={"app": "web", "of": "dfw"},
        annotations={"team": "a", "note": "x"},
    )
    assert copy.spec == source.spec


def test_the_copy_of_an_immutable_config_map_can_follow_its_source() -> None:
    source = ConfigMap(metadata=ObjectMeta(name="app"), data={"a": "1"}, immutable=True)
    copy = desired_copy(source, "ns-u", carry=Marks(), mark=Marks())
    assert (copy.data, copy.immutable) == ({"a": "1"}, None)
    (create,) = plan_mirror(HUB, CONFIG_MAP, copy, None, "copy")
    assert create == Create(HUB, CONFIG_MAP, copy, "copy")


@pytest.mark.parametrize("with_status", [True, False])
def test_a_new_copy_has_the_status_of_its_source_only_if_that_is_copied(with_status: bool) -> None:
    (create,) = plan_mirror(HUB, INSTANCE, SOURCE, None, "copy", with_status=with_status)
    assert isinstance(create, Create)
    assert isinstance(create.object, Instance)
    assert create.with_status is with_status
    assert create.object.status == (SOURCE.status if with_status else InstanceStatus())


def test_metadata_is_written_before_the_status() -> None:
    bare = msgspec.structs.replace(the_copy(labels={}), status=InstanceStatus())
    (metadata,) = plan_mirror(HUB, INSTANCE, the_copy(), bare, "copy", with_status=True)
    assert isinstance(metadata, Patch)
    bare = msgspec.structs.replace(the_copy(), status=InstanceStatus())
    (status,) = plan_mirror(HUB, INSTANCE, the_copy(), bare, "copy", with_status=True)
    assert isinstance(status, PatchStatus)
    assert plan_mirror(HUB, INSTANCE, the_copy(), the_copy(), "copy", with_status=True) == []
    assert plan_mirror(HUB, INSTANCE, the_copy(), bare, "copy") == []


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        pytest.param({"deletion_timestamp": NOW}, Wait, id="being deleted"),
        pytest.param(
            {"owner_references": [msgspec.structs.replace(OWNER, uid="earlier")]},
            Wait,
            id="of an earlier owner",
        ),
        pytest.param({}, Delete, id="cannot be patched"),
        pytest.param({"owner_references": []}, Delete, id="without an owner"),
    ],
)
def test_a_copy_in_the_way_is_awaited_or_deleted(changed: dict[str, Any], expected: type) -> None:
    observed = the_copy(**changed)
    actions = plan_mirror(HUB, INSTANCE, the_copy(), observed, "copy", recreate="other size")
    assert [type(action) for action in actions] == [expected]
    assert is_waiting(actions) == (expected is Wait)


@pytest.mark.parametrize(("unchanged", "version"), [(True, "4"), (False, "")])
def test_a_copy_without_a_source_is_deleted_by_uid(unchanged: bool, version: str) -> None:
    (delete,) = plan_copy_deletion(HUB, INSTANCE, the_copy(), "gone", unchanged=unchanged)
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.version) == ("copy", version)


def test_a_copy_that_is_gone_or_being_deleted_is_not_deleted() -> None:
    assert plan_copy_deletion(HUB, INSTANCE, None, "gone") == []
    assert plan_copy_deletion(HUB, INSTANCE, the_copy(deletion_timestamp=NOW), "gone") == []
