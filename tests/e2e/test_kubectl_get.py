"""``kubectl get`` with all outputs and selectors."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import config_map, listed, workload

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

NAMESPACE = "to-be-read"


@pytest.fixture(scope="module")
def kubectl(in_platform: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a namespace with three workloads that no controller changes."""
    in_platform("create", "namespace", NAMESPACE)
    inside = in_platform.in_namespace(NAMESPACE)
    teams = {"one": "a", "two": "a", "three": "b"}
    made = [workload(name, labels={"team": team}) for name, team in teams.items()]
    inside("create", "-f", "-", stdin=listed(*made, config_map("settings", color="blue")))
    yield inside
    in_platform("delete", "namespace", NAMESPACE, "--wait=false")


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_a_table_has_the_columns_of_the_kind(kubectl: Kubectl) -> None:
    heading, *found = rows(kubectl("get", "workloads"))
    assert heading[:3] == ["NAME", "AGE", "AVAILABLE"]
    assert [row[0] for row in found] == ["one", "three", "two"]


def test_a_wide_table_contains_all_columns(kubectl: Kubectl) -> None:
    plain, wide = (rows(kubectl("get", "workloads", "one", *more)) for more in ((), ("-o", "wide")))
    assert set(plain[0]) <= set(wide[0])


def test_labels_are_shown_as_columns(kubectl: Kubectl) -> None:
    assert "team=a" in kubectl("get", "workload", "one", "--show-labels")
    assert rows(kubectl("get", "workloads", "-L", "team", "--no-headers"))[0][-1] == "a"


@pytest.mark.parametrize("name", ["workload", "workloads", "wl", "workloads.compute.datumapis.com"])
def test_a_kind_is_found_by_all_its_names(kubectl: Kubectl, name: str) -> None:
    assert kubectl("get", name, "one", "-o", "name") == "workload.compute.datumapis.com/one\n"


def test_a_category_lists_all_its_kinds(kubectl: Kubectl, in_project: Kubectl) -> None:
    assert "workload.compute.datumapis.com/one" in kubectl("get", "all")
    assert "workload.compute.datumapis.com/one" in kubectl("get", "compute")
    for category in ("all", "compute", "networking", "quota", "catalogue"):
        in_project("get", category)


def test_yaml_and_json_are_the_same_object(kubectl: Kubectl) -> None:
    as_yaml = yaml.safe_load(kubectl("get", "workload", "one", "-o", "yaml"))
    as_json = kubectl.json("get", "workload", "one")
    assert as_json["kind"] == "Workload"
    assert as_yaml == as_json
    assert "managedFields" not in as_json["metadata"]
    assert kubectl.json("get", "workload", "one", "--show-managed-fields")["metadata"][
        "managedFields"
    ]


def test_replacing_objects_with_their_own_output_changes_nothing(kubectl: Kubectl) -> None:
    before = kubectl.json("get", "workloads")
    kubectl("replace", "-f", "-", stdin=kubectl("get", "workloads", "-o", "yaml"))
    assert kubectl.json("get", "workloads")["items"] == before["items"], "the objects are unchanged"


def test_jsonpath_templates_and_custom_columns_select_values(kubectl: Kubectl) -> None:
    path = "jsonpath={.items[*].metadata.name}"
    assert kubectl("get", "workloads", "-o", path) == "one three two"
    template = "go-template={{range .items}}{{.metadata.labels.team}}{{end}}"
    assert kubectl("get", "workloads", "-o", template) == "aba"
    columns = "custom-columns=NAME:.metadata.name,TEAM:.metadata.labels.team"
    assert rows(kubectl("get", "workloads", "-o", columns))[1:] == [
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
def test_label_selectors_filter(kubectl: Kubectl, selector: str, names: list[str]) -> None:
    found = kubectl("get", "workloads", "-l", selector, "-o", "jsonpath={.items[*].metadata.name}")
    assert found.split() == names


def test_field_selectors_filter(kubectl: Kubectl) -> None:
    select = ("get", "workloads", "-o", "name", "--field-selector")
    assert kubectl(*select, "metadata.name=one").count("\n") == 1
    assert kubectl(*select, "metadata.name!=one").count("\n") == 2
    terms = "status.phase=Active,metadata.name=default"
    assert kubectl("get", "ns", "-o", "name", "--field-selector", terms) == "namespace/default\n"
    assert "spec.nonsense" in kubectl.error_of(*select, "spec.nonsense=1")


def test_all_namespaces_are_shown_with_their_names(kubectl: Kubectl, in_platform: Kubectl) -> None:
    heading, *found = rows(in_platform("get", "workloads", "-A", "-l", "team=b"))
    assert (heading[0], found[0][:2]) == ("NAMESPACE", [NAMESPACE, "three"])


def test_lists_can_be_chunked_and_sorted(kubectl: Kubectl) -> None:
    chunked = kubectl("get", "workloads", "--chunk-size=1", "-o", "name")
    assert chunked == kubectl("get", "workloads", "-o", "name")
    by_team = kubectl("get", "workloads", "--sort-by=.metadata.labels.team", "--no-headers")
    assert [row[0] for row in rows(by_team)][-1] == "three"


def test_several_kinds_and_names_in_one_command(kubectl: Kubectl) -> None:
    found = kubectl("get", "workload/one", "configmap/settings", "-o", "name").split()
    assert found == ["workload.compute.datumapis.com/one", "configmap/settings"]


def test_missing_objects_and_kinds_are_reported(kubectl: Kubectl) -> None:
    assert 'workloads.compute.datumapis.com "nope" not found' in kubectl.error_of(
        "get", "wl", "nope"
    )
    assert kubectl("get", "wl", "nope", "--ignore-not-found") == ""
    assert "doesn't have a resource type" in kubectl.error_of("get", "pods")
    assert "No resources found" in kubectl.run("get", "networks").stderr


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health_is_read_raw(kubectl: Kubectl, path: str) -> None:
    assert kubectl("get", "--raw", path) == "ok"


def test_versions_and_paths_are_read_raw(kubectl: Kubectl) -> None:
    version = json.loads(kubectl("get", "--raw", "/version"))
    assert (version["major"], "+datum-" in version["gitVersion"]) == ("1", True)
    assert "+datum-" in kubectl("version")
    assert "/apis" in json.loads(kubectl("get", "--raw", "/"))["paths"]
    raw = f"/apis/compute.datumapis.com/v1alpha/namespaces/{NAMESPACE}/workloads?limit=1"
    assert len(json.loads(kubectl("get", "--raw", raw))["items"]) == 1
    assert "not find the requested resource" in kubectl.error_of("get", "--raw", "/nosuch")
