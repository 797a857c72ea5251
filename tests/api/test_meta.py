"""Metadata and the names of objects."""

from __future__ import annotations

from datum_compute.api.core import Namespace
from datum_compute.api.kinds import KINDS, NAMESPACE, WORKLOAD, kind_of
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import (
    ApiObject,
    Ref,
    controller_uid,
    owner_reference,
    ref_of,
    selectable_fields,
)


def named(name: str, **metadata: object) -> ApiObject:
    return from_json({"metadata": {"name": name, "uid": f"uid-{name}", **metadata}}, Namespace)


def test_refs_read_like_paths() -> None:
    assert str(Ref("default", "web")) == "default/web"
    assert str(Ref("", "hub")) == "hub"
    assert ref_of(named("web", namespace="default")) == Ref("default", "web")


def test_the_controlling_owner_is_found_among_others() -> None:
    owner = named("owner")
    reference = owner_reference(owner, WORKLOAD)
    assert (reference.api_version, reference.kind) == ("compute.datumapis.com/v1alpha", "Workload")
    bystander = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "uid-x"}
    controlling = {**bystander, "uid": owner.metadata.uid, "controller": True}
    owned = named("owned", ownerReferences=[bystander, controlling])
    assert controller_uid(owned) == reference.uid == "uid-owner"
    assert controller_uid(named("free")) == ""


def test_an_object_is_terminating_once_it_has_a_deletion_time() -> None:
    assert not named("web").is_terminating
    assert named("web", deletionTimestamp="2026-01-01T00:00:00Z").is_terminating


def test_versions_are_numbers_and_absent_is_zero() -> None:
    assert named("web").version == 0
    assert named("web", resourceVersion="12").version == 12


def test_every_kind_is_found_by_its_api_version() -> None:
    for kind in KINDS:
        assert kind_of(kind.api_version, kind.kind) is kind
    assert kind_of("compute.datumapis.com/v1", "Workload") is None
    assert NAMESPACE.resource == "namespaces"
    assert WORKLOAD.resource == "workloads.compute.datumapis.com"


def test_field_selectors_are_called_as_the_path_of_their_value() -> None:
    (found,) = selectable_fields("spec.phase")
    assert (found.label, found.path) == ("spec.phase", ".spec.phase")


def test_a_word_for_one_of_our_kinds_means_no_other_whatever_its_group() -> None:
    """kubectl takes the first of several, and nobody knows which that is."""
    words = [word for kind in KINDS for word in {kind.plural, kind.singular, *kind.short_names}]
    for kind in KINDS:
        if not kind.built_in:
            for word in (kind.plural, kind.singular, *kind.short_names):
                assert words.count(word) == 1, word
    assert not {word for kind in KINDS for word in kind.categories} & set(words)
