"""Differences between objects, as a merge patch and as lines of text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.meta.json_patch import build_merge_patch
from datum_compute.api.object_diff import ChangeKind, FieldChange, diff_objects, render_changes

KEYS = st.sampled_from("abcd")
SCALARS = st.integers(0, 3) | st.sampled_from(["x", "y"]) | st.lists(st.integers(0, 2), max_size=2)
VALUES = st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=3))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


@given(OBJECTS, OBJECTS)
def test_lines_are_rendered_if_and_only_if_there_is_a_patch(
    observed: dict[str, Any], desired: dict[str, Any]
) -> None:
    assert bool(render_changes(observed, desired)) == bool(build_merge_patch(observed, desired))


def spec(**container: Any) -> dict[str, Any]:
    containers = [{"name": "app", "image": "web:1", **container}, {"name": "side", "image": "s"}]
    return {"spec": {"template": {"spec": {"runtime": {"sandbox": {"containers": containers}}}}}}


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        (spec(), spec(), []),
        (spec(), spec(image="web:2"), ["containers[app].image: web:1 -> web:2"]),
        (spec(), spec(args=["a", "b"]), ["containers[app].args: added a,b"]),
        (spec(args=["a"]), spec(args=["b"]), ["containers[app].args: a -> b"]),
        (
            spec(ports=[{"name": "http", "port": 80}]),
            spec(ports=[{"name": "http", "port": 81}]),
            ["containers[app].ports[http].port: 80 -> 81"],
        ),
        (
            {"spec": {"placements": [{"name": "default"}]}},
            {"spec": {"placements": [{"name": "default"}, {"name": "east"}]}},
            ["placements[east]: added"],
        ),
        (
            spec(),
            spec(ports=[{"name": "http", "port": 80}]),
            ["containers[app].ports[http]: added"],
        ),
        (spec(env=[{"name": "KEY"}]), spec(env=[]), ["containers[app].env[KEY]: removed"]),
        (
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": "1"}}},
            ["metadata.labels.b: removed"],
        ),
        ({"spec": {}}, {"spec": {"paused": True}}, ["paused: false -> true"]),
        ({"spec": {"paused": True}}, {"spec": {}}, ["paused: true -> false"]),
        ({"spec": {}}, {"spec": {"paused": False}}, ["paused: added false"]),
    ],
)
def test_changes_are_rendered_as_lines(
    before: dict[str, Any], after: dict[str, Any], lines: list[str]
) -> None:
    assert render_changes(before, after) == lines


@pytest.mark.parametrize("before", [[], [{"name": "KEY", "value": "old-secret"}]])
def test_values_of_environment_variables_are_not_rendered(before: list[dict[str, str]]) -> None:
    after = [{"name": "KEY", "value": "new-secret"}, {"name": "MORE", "value": "third-secret"}]
    shown = "\n".join(render_changes(spec(env=before), spec(env=after)))
    assert "secret" not in shown
    assert "containers[app].env[MORE]: added" in shown


def test_changed_environment_variables_are_rendered_by_name() -> None:
    before = [{"name": "KEY", "value": "1"}, {"name": "OLD", "value": "1"}]
    after = [{"name": "KEY", "value": "2"}, {"name": "NEW", "value": "1"}]
    assert render_changes(spec(env=before), spec(env=after)) == [
        "containers[app].env[KEY]: changed",
        "containers[app].env[NEW]: added",
        "containers[app].env[OLD]: removed",
    ]


def test_removals_and_changes_have_different_kinds() -> None:
    before = {"metadata": {"labels": {"a": "x: removed", "b": "2"}}}
    after = {"metadata": {"labels": {"a": "y: removed"}}}
    assert diff_objects(before, after) == [
        FieldChange("metadata.labels.a", ChangeKind.CHANGED, "x: removed", "y: removed"),
        FieldChange("metadata.labels.b", ChangeKind.REMOVED, "2", None),
    ]
