"""Merge patches of differences: correct for any two objects, and empty for equal ones."""

from __future__ import annotations

import msgspec

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
