"""Merge patches of differences: correct for any two objects, and empty for equal ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.core import Namespace, NamespaceSpec
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import HUB
from datum_compute.planning.apply import plan_object
from datum_compute.planning.plan import Create, Patch
from testkit.builders import a_deployment


def test_the_spec_of_a_namespace_is_not_patched() -> None:
    observed = Namespace(
        metadata=ObjectMeta(name="a"), spec=NamespaceSpec(finalizers=["kubernetes"])
    )
    desired = Namespace(metadata=ObjectMeta(name="a"))
    assert plan_object(HUB, NAMESPACE, desired, observed, "same") == []


def test_an_absent_object_is_created() -> None:
    desired = a_deployment()
    assert [Create(HUB, DEPLOYMENT, desired, "new")] == plan_object(
        HUB, DEPLOYMENT, desired, None, "new"
    )


def test_labels_of_other_writers_are_not_changed() -> None:
    desired = a_deployment()
    theirs = msgspec.structs.replace(desired.metadata, labels={"theirs": "kept"})
    observed = msgspec.structs.replace(desired, metadata=theirs)
    assert plan_object(HUB, DEPLOYMENT, desired, observed, "same") == []
    ours = msgspec.structs.replace(desired.metadata, labels={"ours": "set"})
    (patch,) = plan_object(
        HUB, DEPLOYMENT, msgspec.structs.replace(desired, metadata=ours), observed, "label"
    )
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"] == {"ours": "set"}


def test_a_patch_applies_only_to_the_observed_version() -> None:
    (patch,) = plan_object(HUB, DEPLOYMENT, a_deployment("web:2"), a_deployment("web:1"), "new")
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("desired", "observed", "expected"),
    [
        ({}, {"max_unavailable": 1}, None),
        ({"max_unavailable": 1}, {}, None),
        ({}, {"max_unavailable": 2}, {"maxUnavailable": None}),
        ({"max_unavailable": 0, "max_surge": 1}, {}, {"maxUnavailable": 0, "maxSurge": 1}),
        ({"max_surge": 1}, {"max_unavailable": 1}, {"maxUnavailable": None, "maxSurge": 1}),
        (
            {"max_unavailable": 1, "max_surge": 1},
            {"max_unavailable": 1},
            {"maxSurge": 1},
        ),
        ({}, {"max_unavailable": 1, "max_surge": 1}, {"maxSurge": None}),
    ],
)
def test_a_stored_default_of_max_unavailable_is_rewritten_only_if_its_effect_differs(
    desired: dict[str, Any], observed: dict[str, Any], expected: dict[str, int | None] | None
) -> None:
    wanted = a_deployment(scale=ScaleSettings(min_replicas=1, **desired))
    present = a_deployment(scale=ScaleSettings(min_replicas=1, **observed))
    patches = plan_object(HUB, DEPLOYMENT, wanted, present, "scale")
    scales = [
        action.patch["spec"]["scaleSettings"] for action in patches if isinstance(action, Patch)
    ]
    assert scales == ([] if expected is None else [expected])


def test_another_change_keeps_a_stored_default_of_max_unavailable() -> None:
    wanted = a_deployment(scale=ScaleSettings(min_replicas=3))
    present = a_deployment(scale=ScaleSettings(min_replicas=2, max_unavailable=1))
    (patch,) = plan_object(HUB, DEPLOYMENT, wanted, present, "scale")
    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"scaleSettings": {"minReplicas": 3}}
