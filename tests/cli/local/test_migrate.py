"""Export to another platform: the exported fields, and the comparison of existing objects."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.planes import PLATFORM
from datum_compute.cli.local.migrate import keeps_projects_of
from datum_compute.cli.local.migration import Copy, contains_fields, without_server_fields
from tests.cli.commands.test_access import offered
from tests.cli.world import World

FOUND: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "settings",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "7",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "x"}],
        "ownerReferences": [{"uid": "o"}],
        "finalizers": ["f"],
        "labels": {"team": "a"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "b"},
    },
    "data": {"MODE": "fast"},
    "status": {"phase": "x"},
}


def test_export_contains_only_fields_set_by_users() -> None:
    assert without_server_fields(CONFIG_MAP, FOUND) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "settings",
            "namespace": "default",
            "labels": {"team": "a"},
            "annotations": {"note": "b"},
        },
        "data": {"MODE": "fast"},
    }


def test_export_never_prints_secret_values() -> None:
    copy = Copy(CONFIG_MAP, without_server_fields(CONFIG_MAP, FOUND))
    assert "fast" not in f"{copy} {copy!r}"


_LABELLED = {"metadata": {"labels": {"a": "1"}}}


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ({"spec": {"a": 1, "added": 2}}, {"spec": {"a": 1}}, True),
        ({"spec": {"a": 1}}, {"spec": {"a": 2}}, False),
        ({"spec": {"a": [{"x": 1, "added": 2}]}}, {"spec": {"a": [{"x": 1}]}}, True),
        ({"spec": {"a": [1, 2]}}, {"spec": {"a": [1]}}, False),
        ({"spec": {}}, {"spec": {"a": []}}, True),
        ({"spec": {}}, {"spec": {"a": [1]}}, False),
        ({"data": {"a": "1", "b": "2"}}, {"data": {"a": "1"}}, False),
        (
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": "1"}}},
            True,
        ),
    ],
)
def test_defaults_of_the_server_are_no_difference_except_in_data(
    found: dict[str, Any], wanted: dict[str, Any], same: bool
) -> None:
    assert contains_fields(found, wanted) is same


def test_an_api_server_with_our_definitions_keeps_projects_only_if_it_offers_compute(
    world: World,
) -> None:
    assert world.do(keeps_projects_of, PLATFORM) is False, "one cluster has the definitions too"
    offered(world, "SelfService")
    assert world.do(keeps_projects_of, PLATFORM) is True
