"""What kubectl learns of the kinds: explain, api-resources, api-versions; also of new ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.processes.kubectl import Kubectl
from tests.e2e.manifests import WIDGETS, widget, widget_definition

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

SPACE = "workshop"


@pytest.fixture(scope="module")
def widgets(in_platform: Kubectl) -> Iterator[Kubectl]:
    """A namespace of a plane where users have defined a kind of their own."""
    in_platform("create", "namespace", SPACE)
    in_platform("apply", "-f", "-", stdin=widget_definition())
    in_platform("wait", f"crd/{WIDGETS}", "--for=condition=Established", "--timeout=20s")
    yield in_platform.within(SPACE)
    in_platform("delete", "crd", WIDGETS)
    in_platform("delete", "namespace", SPACE, "--wait=false")


def test_a_kind_of_ours_is_explained_field_by_field(in_project: Kubectl) -> None:
    told = in_project("explain", "workload")
    assert "GROUP:      compute.datumapis.com" in told
    assert "spec\t<Object> -required-" in told
    assert "Instances in each city" in in_project(
        "explain", "workload.spec.placements.scaleSettings.minReplicas"
    )
    assert "does not exist" in in_project.refused("explain", "workload.spec.nonsense")


def test_all_fields_are_listed_at_once(in_project: Kubectl) -> None:
    told = in_project("explain", "wl.spec", "--recursive")
    for field in ("placements\t<[]Object>", "cityCodes\t<[]string>", "image\t<string>"):
        assert field in told


@pytest.mark.parametrize("kind", ["namespace", "configmap", "role", "crd", "event", "lease"])
def test_core_kinds_are_explained(in_project: Kubectl, kind: str) -> None:
    assert "FIELDS:" in in_project("explain", kind, "--recursive")


def test_a_kind_made_at_run_time_is_explained(widgets: Kubectl) -> None:
    assert "something that turns" in widgets("explain", "widget")
    assert "How large it is." in widgets("explain", "wdg.spec.size")
    told = widgets("explain", "widget", "--recursive")
    assert "size\t<integer> -required-" in told


def test_a_kind_made_at_run_time_is_used_like_any_other(widgets: Kubectl) -> None:
    widgets("apply", "-f", "-", stdin=widget("one", size=3))
    heading, row = (line.split() for line in widgets("get", "toys").splitlines())
    assert (heading, row) == (["NAME", "SIZE"], ["one", "3"])
    assert "spec.size" in widgets.refused("apply", "-f", "-", stdin=widget("two", size=0))
    assert "unknown field" in widgets.refused("apply", "-f", "-", stdin=widget("two", depth=1))
    widgets("scale", "widget", "one", "--replicas=5")
    assert widgets("get", "wdg", "one", "-o=jsonpath={.spec.replicas}") == "5"
    assert "Size:" in widgets("describe", "widget", "one")


def test_the_list_of_kinds_is_complete(in_project: Kubectl, widgets: Kubectl) -> None:
    lines = in_project("api-resources", "--no-headers").splitlines()
    kinds = {line.split()[-1] for line in lines}
    assert {"Workload", "Instance", "Namespace", "Role", "SubjectAccessReview"} <= kinds
    assert "Widget" not in kinds, "another plane's"
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


def test_the_control_plane_says_where_it_is(in_project: Kubectl) -> None:
    found = in_project.run("cluster-info")
    assert found.returncode == 0, found.stderr
    assert "control plane" in found.stdout
    assert found.stderr == ""


def test_who_looks_for_services_of_kubernetes_is_told_of_the_catalogue(
    in_platform: Kubectl,
) -> None:
    found = in_platform.run("get", "services")
    assert "services.services.miloapis.com" in found.stderr
    assert "compute" in in_platform("get", "services.services.miloapis.com", "-o", "name")


def test_versions_are_listed(in_project: Kubectl) -> None:
    versions = in_project("api-versions").split()
    assert {"v1", "compute.datumapis.com/v1alpha", "rbac.authorization.k8s.io/v1"} <= set(versions)
