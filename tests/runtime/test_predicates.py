"""Standard predicates: which updates they pass."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from datum_compute.api.conditions import TRUE, UNKNOWN, Condition
from datum_compute.api.meta.objects import OwnerReference
from datum_compute.runtime.predicates import (
    UpdateFilter,
    any_of,
    generation_changed,
    never,
    new_state,
    spec_or_metadata_changed,
    value_changed,
)
from testkit.builders import NOW, a_deployment

OLD = a_deployment()
OWNER = OwnerReference(api_version="v1", kind="Namespace", name="a", uid="a")
STATUS_UPDATE = replace(OLD, status=replace(OLD.status, replicas=5))


def with_metadata(**fields: Any) -> Any:
    return replace(OLD, metadata=replace(OLD.metadata, **fields))


METADATA_UPDATES = {
    "deletion": with_metadata(deletion_timestamp=NOW),
    "finalizers": with_metadata(finalizers=["example.com/hold"]),
    "labels": with_metadata(labels={"new": "label"}),
    "annotations": with_metadata(annotations={"new": "annotation"}),
    "owners": with_metadata(owner_references=[OWNER]),
}
SPEC_UPDATE = with_metadata(generation=OLD.metadata.generation + 1)


def test_a_status_update_changes_neither_spec_nor_metadata() -> None:
    assert not generation_changed(OLD, STATUS_UPDATE)
    assert not spec_or_metadata_changed(OLD, STATUS_UPDATE)


@pytest.mark.parametrize("new", METADATA_UPDATES.values(), ids=METADATA_UPDATES)
def test_a_metadata_update_passes_one_of_the_predicates(new: Any) -> None:
    assert spec_or_metadata_changed(OLD, new)
    assert not generation_changed(OLD, new)


def test_a_spec_update_passes_both() -> None:
    assert generation_changed(OLD, SPEC_UPDATE)
    assert spec_or_metadata_changed(OLD, SPEC_UPDATE)


def test_a_value_is_compared_before_and_after_the_update() -> None:
    passes = value_changed(lambda deployment: deployment.status.replicas)
    assert passes(OLD, STATUS_UPDATE)
    assert not passes(STATUS_UPDATE, STATUS_UPDATE)
    assert not passes(OLD, SPEC_UPDATE)


def test_only_the_new_state_is_matched() -> None:
    passes = new_state(lambda condition: condition.status == TRUE)
    ready = Condition(type="Ready", status=TRUE, reason="Ready")
    unknown = Condition(type="Ready", status=UNKNOWN, reason="Pending")
    assert passes(ready, ready)
    assert passes(unknown, ready)
    assert not passes(ready, unknown)
    assert not passes(unknown, unknown)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ((never, spec_or_metadata_changed), True),
        ((never, generation_changed), False),
        ((never,), False),
    ],
    ids=["one passes", "none passes", "never"],
)
def test_one_of_several_filters_is_enough(
    filters: tuple[UpdateFilter, ...], expected: bool
) -> None:
    assert any_of(*filters)(OLD, METADATA_UPDATES["labels"]) is expected


def test_never_skips_updates_and_new_objects() -> None:
    assert not never(OLD)
    assert not never(OLD, SPEC_UPDATE)
