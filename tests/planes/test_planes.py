"""Access to engaged planes, keys from identity labels, and the scope of a joined cell."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest

from datum_compute.api import labels
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane, project_plane
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.planes import (
    Planes,
    assume_missing,
    hub_label_scope,
    project_label_scope,
    upstream_key,
)
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Key


async def send_nothing(request: Request) -> Response:
    raise AssertionError(f"unexpected request: {request.method} {request.path}")


def a_client(plane: PlaneName) -> CachedClient:
    client = Client(InProcessTransport(send_nothing), prefix="", token="", agent="test")
    return CachedClient(plane, client, Random(1))


def engaged(*names: PlaneName) -> Planes:
    clients = {name: a_client(name) for name in names}
    return Planes(clients.get, lambda: sorted(clients))


def test_each_plane_is_found_by_the_name_of_its_project_or_cell() -> None:
    planes = engaged(HUB, project_plane("shop"), cell_plane("dfw"))
    project, cell = planes.project("shop"), planes.cell("dfw")
    assert project is not None
    assert cell is not None
    assert (planes.hub.plane, project.plane, cell.plane) == ("hub", "project/shop", "cell/dfw")
    assert planes.engaged_planes() == ["cell/dfw", "hub", "project/shop"]


def test_a_plane_that_is_not_engaged_is_never_replaced_by_another() -> None:
    planes = engaged(cell_plane("shop"))
    assert planes.project("shop") is None
    with pytest.raises(NotSynced, match="hub is not engaged"):
        planes.require(HUB)
    with pytest.raises(AssertionError, match="empty"):
        planes.get(PlaneName(""))


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        pytest.param(
            {labels.UPSTREAM_CLUSTER: "cluster-shop", labels.UPSTREAM_NAMESPACE: "default"},
            Key(project_plane("shop"), Ref("default", "web")),
            id="complete",
        ),
        pytest.param({labels.UPSTREAM_NAMESPACE: "default"}, None, id="no-project"),
        pytest.param({labels.UPSTREAM_CLUSTER: "cluster-shop"}, None, id="no-namespace"),
        pytest.param(
            {labels.UPSTREAM_CLUSTER: "cluster-", labels.UPSTREAM_NAMESPACE: "default"},
            None,
            id="empty-project",
        ),
        pytest.param(
            {labels.UPSTREAM_CLUSTER: "cluster-shop", labels.UPSTREAM_NAMESPACE: ""},
            None,
            id="empty-namespace",
        ),
    ],
)
def test_only_complete_identity_labels_map_to_an_object_of_a_project(
    identity: Mapping[str, str], expected: Key | None
) -> None:
    assert upstream_key(identity, "web") == expected


@pytest.mark.parametrize(
    ("cluster", "project"),
    [
        ("cluster-shop", "shop"),
        ("cluster-org_shop", "shop"),
        ("cluster-_shop", "shop"),
    ],
)
def test_upstream_labels_map_to_the_bare_project_name(cluster: str, project: str) -> None:
    identity = {labels.UPSTREAM_CLUSTER: cluster, labels.UPSTREAM_NAMESPACE: "default"}
    assert upstream_key(identity, "web") == Key(project_plane(project), Ref("default", "web"))


@pytest.mark.parametrize("cluster", ["", "shop", "cluster-", "cluster-org_"])
def test_an_empty_or_foreign_cluster_label_maps_to_no_project(cluster: str) -> None:
    identity = {labels.UPSTREAM_CLUSTER: cluster, labels.UPSTREAM_NAMESPACE: "default"}
    assert upstream_key(identity, "web") is None
    assert upstream_key({labels.UPSTREAM_CLUSTER: "cluster-shop"}, "web") is None


def test_a_cell_reads_the_deployments_of_its_city_and_its_own_instances() -> None:
    assert hub_label_scope("dfw-2", "dfw") == {
        "workloaddeployments.compute.datumapis.com": {labels.TOPOLOGY_CITY: "DFW"},
        "instances.compute.datumapis.com": {labels.CELL: "dfw-2"},
    }


def test_a_cell_reads_its_own_quota_claims_of_a_project() -> None:
    assert project_label_scope("dfw-2") == {
        "resourceclaims.quota.miloapis.com": {labels.SOURCE_CLUSTER: "dfw-2"}
    }


def test_objects_of_other_servers_are_assumed_to_be_missing() -> None:
    assert not assume_missing(NAMESPACE, Ref("", "default"))
