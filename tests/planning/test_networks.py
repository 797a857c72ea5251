"""When the default network of a project is created."""

from __future__ import annotations

import pytest

from datum_compute.api import labels
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.namespace import Namespace
from datum_compute.api.network import Network, NetworkIpam, NetworkSpec
from datum_compute.api.plane import project_plane
from datum_compute.planning.network.networks import plan_default_network
from datum_compute.planning.plan import Create
from testkit.builders import NOW

PROJECT = project_plane("shop")
NETWORK = Network(
    metadata=ObjectMeta(name="default", namespace="default"),
    spec=NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"]),
)
OPEN = Namespace(metadata=ObjectMeta(name="default"))
REVOKED = Namespace(metadata=ObjectMeta(name="default", annotations={labels.REVOKED: NOW}))
TERMINATING = Namespace(metadata=ObjectMeta(name="default", deletion_timestamp=NOW))


def test_a_project_without_a_default_network_gets_one() -> None:
    (create,) = plan_default_network(PROJECT, OPEN, None, NETWORK).actions
    assert isinstance(create, Create)
    assert create.object == NETWORK


@pytest.mark.parametrize(
    ("namespace", "existing"),
    [
        pytest.param(OPEN, NETWORK, id="network-exists"),
        pytest.param(REVOKED, None, id="access-revoked"),
        pytest.param(TERMINATING, None, id="namespace-terminating"),
        pytest.param(None, None, id="no-namespace"),
    ],
)
def test_nothing_is_created_where_a_network_exists_or_cannot_be_used(
    namespace: Namespace | None, existing: Network | None
) -> None:
    assert plan_default_network(PROJECT, namespace, existing, NETWORK).is_settled
