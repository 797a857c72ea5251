"""Everything kubectl reads, in every form it shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import config_map, listed, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

SPACE = "to-be-read"


@pytest.fixture(scope="module")
def here(in_platform: Kubectl) -> Iterator[Kubectl]:
    """A namespace with three workloads, and nobody who changes them."""
    in_platform("create", "namespace", SPACE)
    inside = in_platform.within(SPACE)
    teams = {"one": "a", "two": "a", "three": "b"}
    made = [workload(name, labels={"team": team}) for name, team in teams.items()]
    inside("create", "-f", "-", stdin=listed(*made, config_map("settings", color="blue")))
    yield inside
    in_platform("delete", "namespace", SPACE, "--wait=false")


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_a_table_has_the_columns_of_the_kind(here: Kubectl) -> None:
    heading, *found = rows(here("get", "workloads"))
    assert heading[:3] == ["NAME", "AGE", "AVAILABLE"]
    assert [row[0] for row in found] == ["one", "three", "two"]


def test_a_wide_table_shows_no_less(here: Kubectl) -> None:
    plain, wide = (rows(here("get", "workloads", "one", *more)) for more in ((), ("-o", "wide")))
    assert set(plain[0]) <= set(wide[0])


def test_labels_are_shown_as_columns(here: Kubectl) -> None:
    assert "team=a" in here("get", "workload", "one", "--show-labels")
    assert rows(here("get", "workloads", "-L", "team", "--no-headers"))[0][-1] == "a"


@pytest.mark.parametrize("name", ["workload", "workloads", "wl", "workloads.compute.datumapis.com"])
def test_a_kind_goes_by_all_its_names(here: Kubectl, name: str) -> None:
    assert here("get", name, "one", "-o", "name") == "workload.compute.datumapis.com/one\n"


def test_a_category_shows_all_its_kinds(here: Kubectl, in_project: Kubectl) -> None:
    assert "workload.compute.datumapis.com/one" in here("get", "all")
    assert "workload.compute.datumapis.com/one" in here("get", "compute")
    for category in ("all", "compute", "networking", "quota", "catalogue"):
        in_project("get", category)


def test_yaml_and_json_are_the_same_object(here: Kubectl) -> None:
    as_yaml = yaml.safe_load(here("get", "workload", "one", "-o", "yaml"))
    as_json = here.json("get", "workload", "one")
    assert as_json["kind"] == "Workload"
    assert as_yaml == as_json
    assert "managedFields" not in as_json["metadata"]
    assert here.json("get", "workload", "one", "--show-managed-fields")["metadata"]["managedFields"]


def test_what_was_read_can_be_written_back(here: Kubectl) -> None:
    before = here.json("get", "workloads")
    here("replace", "-f", "-", stdin=here("get", "workloads", "-o", "yaml"))
    assert here.json("get", "workloads")["items"] == before["items"], "nothing was to be changed"


def test_single_values_are_picked_out(here: Kubectl) -> None:
    path = "jsonpath={.items[*].metadata.name}"
    assert here("get", "workloads", "-o", path) == "one three two"
    template = "go-template={{range .items}}{{.metadata.labels.team}}{{end}}"
    assert here("get", "workloads", "-o", template) == "aba"
    columns = "custom-columns=NAME:.metadata.name,TEAM:.metadata.labels.team"
    assert rows(here("get", "workloads", "-o", columns))[1:] == [
        ["one", "a"],
        ["three", "b"],
        ["two", "a"],
    ]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("team=a", ["one", "two"]),
        ("team!=a", ["three"]),
        ("team in (b,c)", ["three"]),
        ("team,team notin (b)", ["one", "two"]),
        ("!team", []),
    ],
)
def test_labels_select(here: Kubectl, selector: str, names: list[str]) -> None:
    found = here("get", "workloads", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")
    assert found.split() == names


def test_fields_select(here: Kubectl) -> None:
    select = ("get", "workloads", "-o", "name", "--field-selector")
    assert here(*select, "metadata.name=one").count("\n") == 1
    assert here(*select, "metadata.name!=one").count("\n") == 2
    terms = "status.phase=Active,metadata.name=default"
    assert here("get", "ns", "-o", "name", "--field-selector", terms) == "namespace/default\n"
    assert "spec.nonsense" in here.refused(*select, "spec.nonsense=1")


def test_all_namespaces_are_shown_with_their_names(here: Kubectl, in_platform: Kubectl) -> None:
    heading, *found = rows(in_platform("get", "workloads", "-A", "-l", "team=b"))
    assert (heading[0], found[0][:2]) == ("NAMESPACE", [SPACE, "three"])


def test_long_lists_come_in_pieces_and_can_be_sorted(here: Kubectl) -> None:
    chunked = here("get", "workloads", "--chunk-size=1", "-o", "name")
    assert chunked == here("get", "workloads", "-o", "name")
    by_team = here("get", "workloads", "--sort-by=.metadata.labels.team", "--no-headers")
    assert [row[0] for row in rows(by_team)][-1] == "three"


def test_several_kinds_and_names_at_once(here: Kubectl) -> None:
    found = here("get", "workload/one", "configmap/settings", "-o", "name").split()
    assert found == ["workload.compute.datumapis.com/one", "configmap/settings"]


def test_what_is_not_there_is_said_plainly(here: Kubectl) -> None:
    assert 'workloads.compute.datumapis.com "nope" not found' in here.refused("get", "wl", "nope")
    assert here("get", "wl", "nope", "--ignore-not-found") == ""
    assert "doesn't have a resource type" in here.refused("get", "pods")
    assert "No resources found" in here.run("get", "networks").stderr


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_read_raw(here: Kubectl, path: str) -> None:
    assert here("get", "--raw", path) == "ok"


def test_versions_and_paths_are_read_raw(here: Kubectl) -> None:
    version = json.loads(here("get", "--raw", "/version"))
    assert (version["major"], "+datum-" in version["gitVersion"]) == ("1", True)
    assert "+datum-" in here("version")
    assert "/apis" in json.loads(here("get", "--raw", "/"))["paths"]
    raw = f"/apis/compute.datumapis.com/v1alpha/namespaces/{SPACE}/workloads?limit=1"
    assert len(json.loads(here("get", "--raw", raw))["items"]) == 1
    assert "not find the requested resource" in here.refused("get", "--raw", "/nosuch")
