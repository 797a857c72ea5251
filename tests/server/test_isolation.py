"""Planes are isolated: names, access, versions and watches."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.definitions import DEFINITIONS, definition
from testkit.api_server.running_server import PROJECT, InProcessServer, namespace

HUB = "/planes/hub"
ROLE: JsonObject = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "reader"},
    "rules": [],
}
SECRET: JsonObject = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}

OBJECTS: list[tuple[str, JsonObject]] = [
    ("/api/v1/namespaces", namespace("team")),
    ("/api/v1/namespaces/default/secrets", SECRET),
    ("/apis/rbac.authorization.k8s.io/v1/clusterroles", ROLE),
    (DEFINITIONS, definition()),
]


@pytest.mark.parametrize(("path", "obj"), OBJECTS, ids=lambda value: str(value)[-20:])
async def test_an_object_exists_on_its_plane_only(
    server: InProcessServer, path: str, obj: JsonObject
) -> None:
    before = server.store.version("hub")
    watch = await server.watch(HUB + path, resourceVersion=str(before))
    await server.json("POST", PROJECT + path, obj)
    name = obj["metadata"]["name"]
    assert (await server.ask("GET", f"{PROJECT}{path}/{name}")).status == 200
    for prefix in (HUB, "", "/planes/cells/dfw"):
        assert (await server.ask("GET", f"{prefix}{path}/{name}")).status == 404
    assert server.store.version("hub") == before
    await server.json("POST", HUB + path, obj)
    ((kind, seen),) = await watch.take(1)
    assert (kind, int(seen["metadata"]["resourceVersion"])) == ("ADDED", before + 1)
    await server.ask("DELETE", f"{PROJECT}{path}/{name}")
    assert (await server.ask("GET", f"{HUB}{path}/{name}")).status == 200


async def test_deleting_a_plane_does_not_affect_others(server: InProcessServer) -> None:
    for path, obj in OBJECTS:
        await server.json("POST", PROJECT + path, obj)
        await server.json("POST", HUB + path, obj)
    watch = await server.watch(PROJECT + DEFINITIONS)
    await server.store.delete_plane("project/demo")
    seen = [obj["metadata"]["name"] for _, obj in await watch.rest()]
    assert "widgets.example.com" in seen
    for path, obj in OBJECTS:
        gone = await server.ask("GET", f"{PROJECT}{path}/{obj['metadata']['name']}")
        assert gone.status == 404
        kept = await server.ask("GET", f"{HUB}{path}/{obj['metadata']['name']}")
        assert kept.status == 200
    assert (await server.ask("GET", f"{HUB}/apis/example.com/v1/widgets")).status == 200
    await server.store.create_plane("project/demo")
    assert (await server.ask("GET", f"{PROJECT}/apis/example.com/v1/widgets")).status == 404
    assert (await server.json("GET", f"{PROJECT}/api/v1/namespaces"))["items"] == []


async def test_kinds_of_the_platform_are_listed_as_read_only_definitions(
    server: InProcessServer,
) -> None:
    path = f"{DEFINITIONS}/workloads.compute.datumapis.com"
    found = await server.json("GET", path)
    assert found["spec"]["names"]["kind"] == "Workload"
    assert {c["type"]: c["status"] for c in found["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    listed = await server.json("GET", DEFINITIONS)
    names = [item["metadata"]["name"] for item in listed["items"]]
    assert "workloads.compute.datumapis.com" in names
    assert names == sorted(names)
    assert "namespaces" not in str(names)
    assert (await server.status("POST", DEFINITIONS, _strip_metadata(found)))[
        "reason"
    ] == "AlreadyExists"
    for method, body in (("PUT", found), ("DELETE", None)):
        assert (await server.status(method, path, body))["code"] == 403
    assert (await server.patch_refused(path, {"metadata": {"labels": {"a": "b"}}}))["code"] == 403
    await server.json("DELETE", DEFINITIONS)
    assert await server.json("GET", path) == found


def _strip_metadata(found: JsonObject) -> JsonObject:
    metadata: dict[str, Any] = {"name": found["metadata"]["name"]}
    return {**found, "metadata": metadata}
