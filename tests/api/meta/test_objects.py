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


def test_refs_are_rendered_as_paths() -> None:
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


def test_versions_are_numbers_and_an_absent_version_is_zero() -> None:
    assert named("web").version == 0
    assert named("web", resourceVersion="12").version == 12


def test_every_kind_is_found_by_its_api_version() -> None:
    for kind in KINDS:
        assert kind_of(kind.api_version, kind.kind) is kind
    assert kind_of("compute.datumapis.com/v1", "Workload") is None
    assert NAMESPACE.resource == "namespaces"
    assert WORKLOAD.resource == "workloads.compute.datumapis.com"


def test_the_name_of_a_selectable_field_is_its_path() -> None:
    (found,) = selectable_fields("spec.phase")
    assert (found.label, found.path) == ("spec.phase", ".spec.phase")


def test_names_and_short_names_of_our_kinds_are_unique_in_all_groups() -> None:
    """kubectl uses the first match, whose order is undefined."""
    words = [word for kind in KINDS for word in {kind.plural, kind.singular, *kind.short_names}]
    for kind in KINDS:
        if not kind.built_in:
            for word in (kind.plural, kind.singular, *kind.short_names):
                assert words.count(word) == 1, word
    assert not {word for kind in KINDS for word in kind.categories} & set(words)
