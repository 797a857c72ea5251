"""Client lookups: queries of rules, answered by the API server of a plane."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from datum_compute.admission.queries import AccessQuery
from datum_compute.admission.review import Requester
from datum_compute.admission.rules.workload_references import LOCATIONS, TYPES
from datum_compute.admission.webhook import ClientLookups, access_review
from datum_compute.api.errors import Unauthorized
from datum_compute.api.planes import PLATFORM, PlaneName, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from testkit.api_server.granting import grant, rule
from testkit.api_server.running_server import (
    CITIES,
    PROJECT,
    TOKEN,
    InProcessServer,
    running_server,
)
from tests.server.test_instance_types import TYPES as TYPES_PATH

ANN = Requester("ann", "42", ("dev",), {"scopes": ("a", "b")})
USE = AccessQuery("use", "networking.datumapis.com", "networks", "default", "blue")
READ = AccessQuery("get", "", "secrets", "default", "db")


@pytest.fixture
async def server() -> AsyncIterator[InProcessServer]:
    async with running_server() as running:
        yield running


def client(server: InProcessServer, plane: PlaneName, token: str = TOKEN) -> Client:
    transport = InProcessTransport(server.api.dispatch)
    return Client(transport, prefix=path_prefix(plane), token=token, agent="test")


def lookups(server: InProcessServer) -> ClientLookups:
    project = client(server, PlaneName("project/demo"))
    return ClientLookups(project, client(server, PLATFORM))


def a_type(name: str) -> dict[str, object]:
    kind = {"apiVersion": "compute.datumapis.com/v1alpha", "kind": "InstanceType"}
    spec = {"resources": {"cpu": "1", "memory": "2Gi"}}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def test_an_access_review_contains_all_claims_of_the_user() -> None:
    assert access_review(ANN, USE)["spec"] == {
        "user": "ann",
        "uid": "42",
        "groups": ["dev"],
        "extra": {"scopes": ["a", "b"]},
        "resourceAttributes": {
            "verb": "use",
            "group": "networking.datumapis.com",
            "resource": "networks",
            "namespace": "default",
            "name": "blue",
        },
    }
    assert "group" not in access_review(ANN, READ)["spec"]["resourceAttributes"]


async def test_access_is_that_of_the_user_on_the_plane(server: InProcessServer) -> None:
    lookup = lookups(server)
    assert (await lookup.answer(ANN, [USE, READ])).allowed == {USE: False, READ: False}
    await grant(server, rule("use", "networks", group=USE.group, names="blue"), prefix=PROJECT)
    assert (await lookup.answer(ANN, [USE, READ])).allowed == {USE: True, READ: False}


async def test_locations_come_from_the_project_and_types_from_the_catalogue_if_it_has_any(
    server: InProcessServer,
) -> None:
    lookup = lookups(server)
    await server.json("POST", PROJECT + TYPES_PATH, a_type("own"))
    found = (await lookup.answer(ANN, [LOCATIONS, TYPES])).listed
    assert [b["metadata"]["name"] for b in found[LOCATIONS]] == [c.lower() for c in CITIES]
    assert [t["metadata"]["name"] for t in found[TYPES]] == ["own"]
    await server.json("POST", TYPES_PATH, a_type("kept"))
    kept = (await lookup.answer(ANN, [TYPES])).listed[TYPES]
    assert [t["metadata"]["name"] for t in kept] == ["kept"]


async def test_one_failed_query_fails_the_whole_lookup(server: InProcessServer) -> None:
    broken = ClientLookups(client(server, PlaneName("project/demo"), "wrong"))
    with pytest.raises(Unauthorized):
        await broken.answer(ANN, [USE, LOCATIONS])
