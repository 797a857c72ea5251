"""Discovery with kubectl: explain, api-resources and api-versions, also for custom kinds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import WIDGETS, widget, widget_definition

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

NAMESPACE = "workshop"


@pytest.fixture(scope="module")
def widgets(in_platform: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a namespace of a plane with a custom kind."""
    in_platform("create", "namespace", NAMESPACE)
    in_platform("apply", "-f", "-", stdin=widget_definition())
    in_platform("wait", f"crd/{WIDGETS}", "--for=condition=Established", "--timeout=20s")
    yield in_platform.in_namespace(NAMESPACE)
    in_platform("delete", "crd", WIDGETS)
    in_platform("delete", "namespace", NAMESPACE, "--wait=false")


def test_a_kind_of_ours_is_explained_by_field(in_project: Kubectl) -> None:
    output = in_project("explain", "workload")
    assert "GROUP:      compute.datumapis.com" in output
    assert "spec\t<Object> -required-" in output
    assert "Number of instances in each city" in in_project(
        "explain", "workload.spec.placements.scaleSettings.minReplicas"
    )
    assert "does not exist" in in_project.error_of("explain", "workload.spec.nonsense")


def test_explain_recursive_lists_all_fields(in_project: Kubectl) -> None:
    output = in_project("explain", "wl.spec", "--recursive")
    for field in ("placements\t<[]Object>", "cityCodes\t<[]string>", "image\t<string>"):
        assert field in output


@pytest.mark.parametrize("kind", ["namespace", "configmap", "role", "crd", "event", "lease"])
def test_core_kinds_are_explained(in_project: Kubectl, kind: str) -> None:
    assert "FIELDS:" in in_project("explain", kind, "--recursive")


def test_a_custom_kind_is_explained(widgets: Kubectl) -> None:
    assert "something that turns" in widgets("explain", "widget")
    assert "How large it is." in widgets("explain", "wdg.spec.size")
    output = widgets("explain", "widget", "--recursive")
    assert "size\t<integer> -required-" in output


def test_a_custom_kind_has_columns_validation_and_scale(widgets: Kubectl) -> None:
    widgets("apply", "-f", "-", stdin=widget("one", size=3))
    heading, row = (line.split() for line in widgets("get", "toys").splitlines())
    assert (heading, row) == (["NAME", "SIZE"], ["one", "3"])
    assert "spec.size" in widgets.error_of("apply", "-f", "-", stdin=widget("two", size=0))
    assert "unknown field" in widgets.error_of("apply", "-f", "-", stdin=widget("two", depth=1))
    widgets("scale", "widget", "one", "--replicas=5")
    assert widgets("get", "wdg", "one", "-o=jsonpath={.spec.replicas}") == "5"
    assert "Size:" in widgets("describe", "widget", "one")


def test_api_resources_lists_the_kinds_of_the_plane(in_project: Kubectl, widgets: Kubectl) -> None:
    lines = in_project("api-resources", "--no-headers").splitlines()
    kinds = {line.split()[-1] for line in lines}
    assert {"Workload", "Instance", "Namespace", "Role", "SubjectAccessReview"} <= kinds
    assert "Widget" not in kinds, "it is defined on another plane"
    found = widgets("api-resources", "--api-group=example.com", "--no-headers").split()
    assert found == ["widgets", "wdg", "example.com/v1", "true", "Widget"]


def test_kinds_are_listed_by_scope_verb_and_category(in_project: Kubectl) -> None:
    cluster = in_project("api-resources", "--namespaced=false", "-o", "name").split()
    assert ("namespaces" in cluster, "configmaps" in cluster) == (True, False)
    listable = in_project("api-resources", "--verbs=list,watch", "-o", "name").split()
    assert "selfsubjectreviews.authentication.k8s.io" not in listable
    compute = in_project("api-resources", "--categories=compute", "-o", "name").split()
    assert "workloads.compute.datumapis.com" in compute
    wide = in_project("api-resources", "--api-group=compute.datumapis.com", "-o", "wide")
    assert "VERBS" in wide


def test_cluster_info_prints_the_control_plane(in_project: Kubectl) -> None:
    found = in_project.run("cluster-info")
    assert found.returncode == 0, found.stderr
    assert "control plane" in found.stdout
    assert found.stderr == ""


def test_getting_services_names_the_kind_of_the_catalogue(
    in_platform: Kubectl,
) -> None:
    found = in_platform.run("get", "services")
    assert "services.services.miloapis.com" in found.stderr
    assert "compute" in in_platform("get", "services.services.miloapis.com", "-o", "name")


def test_api_versions_lists_all_groups(in_project: Kubectl) -> None:
    versions = in_project("api-versions").split()
    assert {"v1", "compute.datumapis.com/v1alpha", "rbac.authorization.k8s.io/v1"} <= set(versions)
