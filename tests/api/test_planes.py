"""Plane names and path prefixes: two spellings of one thing, and no third."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.planes import (
    HUB,
    PLATFORM,
    PlaneName,
    cell_plane,
    member_name,
    path_prefix,
    plane_role,
    project_plane,
    split_path,
)

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
PLANES = st.one_of(
    st.sampled_from([PLATFORM, HUB]), LABELS.map(project_plane), LABELS.map(cell_plane)
)
PROJECT_A = "/apis/resourcemanager.miloapis.com/v1alpha1/projects/a"


@given(PLANES)
def test_a_prefix_leads_back_to_its_plane(plane: PlaneName) -> None:
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
def test_any_path_is_split_without_losing_a_character(path: str) -> None:
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
def test_tricks_reach_no_member_plane(path: str) -> None:
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
def test_names_that_are_no_label_make_no_plane(name: str) -> None:
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
def test_texts_that_name_no_plane_have_no_prefix_and_no_role(text: str) -> None:
    with pytest.raises(ValueError, match="plane"):
        path_prefix(PlaneName(text))
    with pytest.raises(ValueError, match="plane"):
        plane_role(PlaneName(text))


def test_members_know_their_name() -> None:
    assert member_name(project_plane("a-b")) == "a-b"
    assert plane_role(cell_plane("dfw")) == "cell"
    for plane in (HUB, PLATFORM):
        with pytest.raises(ValueError, match="neither a project nor a cell"):
            member_name(plane)
