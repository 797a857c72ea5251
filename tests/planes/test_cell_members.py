"""The connection of the hub to the gateway of a cell, and the detection of Karmada."""

from __future__ import annotations

import base64

from datum_compute.api.core import Secret
from datum_compute.api.karmada import Cluster, ClusterSpec
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.app.heartbeat import is_karmada
from datum_compute.planes.cell_members import gateway_connection_to

API, GATEWAY = "https://cell.example:6443", "https://gateway.example/planes/cells/dfw"


def a_cluster(gateway: str = "") -> Cluster:
    annotations = {"compute.datumapis.com/gateway": gateway} if gateway else {}
    metadata = ObjectMeta(name="dfw", annotations=annotations)
    return Cluster(metadata=metadata, spec=ClusterSpec(api_endpoint=API))


def a_secret(**values: str) -> Secret:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
    return Secret(metadata=ObjectMeta(name="dfw"), data=data)


def test_the_gateway_address_and_authority_of_the_cluster_are_used() -> None:
    secret = a_secret(token="t", caBundle="of the API", gatewayCaBundle="of the gateway")
    found = gateway_connection_to(a_cluster(GATEWAY), secret)
    assert found is not None
    assert (found.server, found.path_prefix) == ("https://gateway.example", "/planes/cells/dfw")
    assert (found.token, found.ca_pem) == ("t", b"of the gateway")


def test_the_authority_of_the_api_is_used_if_the_gateway_has_none() -> None:
    found = gateway_connection_to(a_cluster(GATEWAY), a_secret(token="t", caBundle="of the API"))
    assert found is not None
    assert found.ca_pem == b"of the API"


def test_the_address_of_the_api_is_used_if_the_gateway_has_none() -> None:
    found = gateway_connection_to(
        a_cluster(), a_secret(token="t", caBundle="x", gatewayCaBundle="y")
    )
    assert found is not None
    assert (found.server, found.ca_pem) == (API, b"x")


def test_there_is_no_connection_without_tls_or_without_a_secret() -> None:
    assert gateway_connection_to(a_cluster("http://gateway.example"), a_secret(token="t")) is None
    assert gateway_connection_to(a_cluster(GATEWAY), None) is None


def test_karmada_is_detected_by_its_api_enablements() -> None:
    status = {"kubernetesVersion": "v1.36.3", "conditions": []}
    assert not is_karmada({"metadata": {}})
    assert not is_karmada({"status": status})
    assert is_karmada({"status": {**status, "apiEnablements": [{"groupVersion": "v1"}]}})
