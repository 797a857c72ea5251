"""How the hub finds the gateway of a cell, and when a cell is silent for Karmada's sake."""

from __future__ import annotations

import base64

from datum_compute.api.core import Secret
from datum_compute.api.karmada import Cluster, ClusterSpec
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.app.cluster_members import gateway_connection_to
from datum_compute.app.heartbeat import is_karmada

API, GATEWAY = "https://cell.example:6443", "https://gateway.example/planes/cells/dfw"


def a_cluster(gateway: str = "") -> Cluster:
    annotations = {"compute.datumapis.com/gateway": gateway} if gateway else {}
    metadata = ObjectMeta(name="dfw", annotations=annotations)
    return Cluster(metadata=metadata, spec=ClusterSpec(api_endpoint=API))


def a_secret(**values: str) -> Secret:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return Secret(metadata=ObjectMeta(name="dfw"), data=data)


def test_it_is_where_the_cluster_says_with_its_own_authority() -> None:
    secret = a_secret(token="t", caBundle="of the API", gatewayCaBundle="of the gateway")
    found = gateway_connection_to(a_cluster(GATEWAY), secret)
    assert found is not None
    assert (found.server, found.path_prefix) == ("https://gateway.example", "/planes/cells/dfw")
    assert (found.token, found.ca_pem) == ("t", b"of the gateway")


def test_without_its_own_authority_that_of_the_api_counts() -> None:
    found = gateway_connection_to(a_cluster(GATEWAY), a_secret(token="t", caBundle="of the API"))
    assert found is not None
    assert found.ca_pem == b"of the API"


def test_without_an_address_the_api_of_the_cell_is_asked() -> None:
    found = gateway_connection_to(
        a_cluster(), a_secret(token="t", caBundle="x", gatewayCaBundle="y")
    )
    assert found is not None
    assert (found.server, found.ca_pem) == (API, b"x")


def test_no_token_goes_over_an_open_line_or_to_nobody() -> None:
    assert gateway_connection_to(a_cluster("http://gateway.example"), a_secret(token="t")) is None
    assert gateway_connection_to(a_cluster(GATEWAY), None) is None


def test_karmada_is_known_by_what_only_it_says() -> None:
    said = {"kubernetesVersion": "v1.36.3", "conditions": []}
    assert not is_karmada({"metadata": {}})
    assert not is_karmada({"status": said})
    assert is_karmada({"status": {**said, "apiEnablements": [{"groupVersion": "v1"}]}})
