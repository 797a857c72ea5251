"""Names and path prefixes of planes, and names of objects that are equal on every plane."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    city_policy_name,
    decode_project_label,
    deployment_of,
    encode_cluster_label,
    execution_namespace,
    federation_namespace,
    instance_name,
    member_name,
    normalize_city,
    path_prefix,
    plane_role,
    project_plane,
    split_path,
    work_name,
    work_names,
)

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
PLANES = st.one_of(
    st.sampled_from([PLATFORM, HUB]), LABELS.map(project_plane), LABELS.map(cell_plane)
)
PROJECT_A = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/a"


@given(PLANES)
def test_a_path_with_a_prefix_is_split_into_plane_and_rest(plane: PlaneName) -> None:
    assert split_path(path_prefix(plane) + "/x") == (plane, "/x")
    assert split_path(path_prefix(plane) + "/apis/g/v/things/y") == (plane, "/apis/g/v/things/y")


@given(PLANES)
def test_a_prefix_alone_is_the_root_of_its_plane(plane: PlaneName) -> None:
    assert split_path(path_prefix(plane) or "/") == (plane, "/")
    assert split_path(path_prefix(plane) + "/") == (plane, "/")


@given(PLANES, PLANES)
def test_different_planes_have_different_prefixes(one: PlaneName, other: PlaneName) -> None:
    assert (path_prefix(one) == path_prefix(other)) == (one == other)


@given(st.text())
def test_splitting_a_path_loses_no_character(path: str) -> None:
    plane, rest = split_path(path)
    assert path_prefix(plane) + rest in (path, path + "/")


@pytest.mark.parametrize(
    "path",
    [
        "/planes/hubs/x",
        "/planes/hub..",
        "/planes/HUB/x",
        "/planes//hub/x",
        "/Planes/hub/x",
        "/planes/cells",
        "/planes/cells/",
        "/planes/cells/../hub/x",
        "/planes/cells/./x",
        "/planes/cells/a.b/x",
        "/planes/cells/A/x",
        "/planes/cells/-a/x",
        "/planes/cells/a-/x",
        "/planes/cells/a%2Fb/x",
        "/planes/cells/a%00/x",
        "/planes/cells/a\n/x",
        "/planes/cells/" + "a" * 64 + "/x",
        f"{PROJECT_A}",
        f"{PROJECT_A}/control-planes/x",
        f"{PROJECT_A}/control-plane%2Fx",
        f"{PROJECT_A}/b/control-plane/x",
        f"{PROJECT_A}%2Fb/control-plane/x",
        f"{PROJECT_A}/../b/control-plane/x",
        f"{PROJECT_A}.b/control-plane/x",
    ],
)
def test_invalid_prefixes_are_paths_of_the_platform_plane(path: str) -> None:
    assert split_path(path) == (PLATFORM, path)


@pytest.mark.parametrize(
    ("path", "plane", "rest"),
    [
        ("/planes/cells/a/../b/x", "cell/a", "/../b/x"),
        ("/planes/cells/a//x", "cell/a", "//x"),
        ("/planes/hub/planes/cells/a/x", "hub", "/planes/cells/a/x"),
        (f"{PROJECT_A}/control-plane/../../b/control-plane", "project/a", "/../../b/control-plane"),
    ],
)
def test_dots_and_slashes_after_the_prefix_stay_in_the_plane(
    path: str, plane: str, rest: str
) -> None:
    assert split_path(path) == (plane, rest)


@pytest.mark.parametrize("name", ["", "A", "a.b", "a/b", "..", "-a", "a-", "a\n", "ä", "a" * 64])
def test_names_of_planes_are_dns_labels(name: str) -> None:
    for make in (project_plane, cell_plane):
        with pytest.raises(ValueError, match="not a DNS label"):
            make(name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hub/x",
        "platform/x",
        "project",
        "project/",
        "cell/a/b",
        "cell/../hub",
        "cell/A",
        "other",
    ],
)
def test_invalid_plane_names_have_no_prefix_and_no_role(text: str) -> None:
    with pytest.raises(ValueError, match="plane"):
        path_prefix(PlaneName(text))
    with pytest.raises(ValueError, match="plane"):
        plane_role(PlaneName(text))


def test_a_member_plane_has_a_name_and_a_role() -> None:
    assert member_name(project_plane("a-b")) == "a-b"
    assert plane_role(cell_plane("dfw")) == "cell"
    for plane in (HUB, PLATFORM):
        with pytest.raises(ValueError, match="neither a project nor a cell"):
            member_name(plane)


NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


def test_the_case_of_a_city_does_not_matter() -> None:
    assert normalize_city(" dfw ") == "DFW"


def test_generated_names_do_not_change_between_releases() -> None:
    """Objects with other names would be created next to the existing ones."""
    assert instance_name("web-default-dfw", 0) == "web-default-dfw-0"
    assert federation_namespace("1-2") == "ns-1-2"
    assert execution_namespace("dfw") == "karmada-es-dfw"
    assert city_policy_name("DFW") == "city-dfw"


@pytest.mark.parametrize(
    ("label", "project"),
    [
        ("cluster-datum-cloud", "datum-cloud"),
        ("cluster-_test-project", "test-project"),
        ("cluster-org_proj", "proj"),
        ("cluster-single", "single"),
        ("cluster-", None),
        ("cluster-a_", None),
        ("single", None),
        ("", None),
    ],
)
def test_the_project_is_the_last_segment_of_the_label(label: str, project: str | None) -> None:
    assert decode_project_label(label) == project


@given(NAMES)
def test_a_decoded_project_label_equals_the_encoded_project(project: str) -> None:
    assert decode_project_label(encode_cluster_label(project)) == project
    assert decode_project_label(encode_cluster_label(f"/org/{project}")) == project


def test_the_deployment_of_an_instance_is_its_label_else_its_name_without_the_ordinal() -> None:
    assert deployment_of("web-dfw-0", {labels.DEPLOYMENT_NAME: "shop"}) == "shop"
    assert deployment_of("web-dfw-0", {}) == "web-dfw"
    assert deployment_of("web-dfw-0") == "web-dfw"
    assert deployment_of("web") == ""


def test_a_work_has_one_name_on_the_embedded_hub_and_one_on_karmada() -> None:
    """The names on Karmada were recorded from version 1.18."""
    ref = Ref("ns-0d6c7192de9c", "web")
    assert work_names(DEPLOYMENT, ref) == (work_name(DEPLOYMENT, ref), "web-5f877fcc8b")
    assert work_names(NAMESPACE, Ref("", ref.namespace))[1] == "ns-0d6c7192de9c-8477cf5f68"


def test_objects_of_equal_name_in_two_namespaces_have_different_works() -> None:
    here, there = (work_names(DEPLOYMENT, Ref(space, "web")) for space in ("ns-a", "ns-b"))
    assert not set(here) & set(there)
