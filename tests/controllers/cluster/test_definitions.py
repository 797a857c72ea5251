"""Custom kinds: deleted with their definition, garbage-collected, renamed."""

from __future__ import annotations

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.definitions import (
    DEFINITIONS,
    WIDGETS,
    conditions,
    definition,
    version,
    widget,
)
from tests.controllers.cluster_fixture import ClusterFixture, owner, with_cluster_controllers

CRD = f"{DEFINITIONS}/widgets.example.com"
HELD = ["example.com/hold"]


def owned(name: str, *owners: JsonObject, finalizers: list[str] | None = None) -> JsonObject:
    metadata = {"name": name, "ownerReferences": list(owners), "finalizers": finalizers or []}
    return {**widget(name), "metadata": metadata}


def test_deleting_a_definition_deletes_its_objects_first() -> None:
    async def story(here: ClusterFixture) -> None:
        await here.create(DEFINITIONS, definition())
        await here.create(WIDGETS, widget("a"))
        await here.create(WIDGETS, owned("held", finalizers=HELD))
        await here.request("DELETE", CRD)
        await here.settle()
        _, left = await here.request("GET", WIDGETS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["held"]
        assert (await here.request("GET", CRD))[0] == 200
        await here.request("PATCH", f"{WIDGETS}/held", {"metadata": {"finalizers": None}})
        await here.settle()
        assert (await here.request("GET", CRD))[0] == 404
        assert (await here.request("GET", WIDGETS))[0] == 404

    with_cluster_controllers(story)


def test_deleting_a_definition_without_served_versions_deletes_its_objects() -> None:
    async def story(here: ClusterFixture) -> None:
        created = await here.create(DEFINITIONS, definition())
        await here.create(WIDGETS, widget("a"))
        hidden = {**created, "spec": definition(version(served=False))["spec"]}
        assert (await here.request("PUT", CRD, hidden))[0] == 200
        assert (await here.request("GET", WIDGETS))[0] == 404
        await here.request("DELETE", CRD)
        await here.settle()
        assert (await here.request("GET", CRD))[0] == 404

    with_cluster_controllers(story)


def test_a_released_name_is_given_to_a_waiting_definition() -> None:
    async def story(here: ClusterFixture) -> None:
        await here.create(DEFINITIONS, definition())
        waiting = definition(kind="Gadget", names={"kind": "Widget", "singular": "gadget"})
        assert conditions(await here.create(DEFINITIONS, waiting))["Established"][0] == "False"
        await here.request("DELETE", CRD)
        await here.settle()
        _, found = await here.request("GET", f"{DEFINITIONS}/gadgets.example.com")
        assert conditions(found)["Established"][0] == "True"
        assert (await here.request("GET", "/apis/example.com/v1/gadgets"))[0] == 200

    with_cluster_controllers(story)


def test_objects_of_custom_kinds_can_be_owners_and_dependents() -> None:
    async def story(here: ClusterFixture) -> None:
        await here.create(DEFINITIONS, definition())
        root = await here.create(WIDGETS, widget("root"))
        child = await here.create(WIDGETS, owned("child", owner(root)))
        await here.config_map("grandchild", owner(child))
        await here.settle()
        assert await here.existing_config_maps("grandchild") == ["grandchild"]
        await here.request("DELETE", f"{WIDGETS}/root", {"propagationPolicy": "Foreground"})
        await here.settle()
        assert (await here.request("GET", WIDGETS))[1]["items"] == []
        assert await here.existing_config_maps("grandchild") == []

    with_cluster_controllers(story)


def test_deleting_a_namespace_deletes_objects_of_custom_kinds() -> None:
    async def story(here: ClusterFixture) -> None:
        await here.create(DEFINITIONS, definition())
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await here.create("/api/v1/namespaces", space)
        await here.create(WIDGETS.replace("default", "team"), widget())
        await here.request("DELETE", "/api/v1/namespaces/team")
        await here.settle()
        assert (await here.request("GET", "/api/v1/namespaces/team"))[0] == 404
        assert (await here.request("GET", "/apis/example.com/v1/widgets"))[1]["items"] == []

    with_cluster_controllers(story)
