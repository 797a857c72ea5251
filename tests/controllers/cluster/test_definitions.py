"""Custom kinds among the neighbours: emptied with their definition, collected, named anew."""

from __future__ import annotations

from datum_compute.api.codec import JsonObject
from tests.controllers.neighbourhood import Neighbourhood, in_neighbourhood, owner
from tests.server.definitions import DEFINITIONS, WIDGETS, conditions, definition, version, widget

CRD = f"{DEFINITIONS}/widgets.example.com"
HELD = ["example.com/hold"]


def owned(name: str, *owners: JsonObject, finalizers: list[str] | None = None) -> JsonObject:
    metadata = {"name": name, "ownerReferences": list(owners), "finalizers": finalizers or []}
    return {**widget(name), "metadata": metadata}


def test_a_definition_takes_its_objects_with_it() -> None:
    async def story(here: Neighbourhood) -> None:
        await here.made(DEFINITIONS, definition())
        await here.made(WIDGETS, widget("a"))
        await here.made(WIDGETS, owned("held", finalizers=HELD))
        await here.ask("DELETE", CRD)
        await here.settled()
        _, left = await here.ask("GET", WIDGETS)
        assert [item["metadata"]["name"] for item in left["items"]] == ["held"]
        assert (await here.ask("GET", CRD))[0] == 200
        await here.ask("PATCH", f"{WIDGETS}/held", {"metadata": {"finalizers": None}})
        await here.settled()
        assert (await here.ask("GET", CRD))[0] == 404
        assert (await here.ask("GET", WIDGETS))[0] == 404

    in_neighbourhood(story)


def test_a_definition_that_serves_no_version_still_goes_with_its_objects() -> None:
    async def story(here: Neighbourhood) -> None:
        made = await here.made(DEFINITIONS, definition())
        await here.made(WIDGETS, widget("a"))
        hidden = {**made, "spec": definition(version(served=False))["spec"]}
        assert (await here.ask("PUT", CRD, hidden))[0] == 200
        assert (await here.ask("GET", WIDGETS))[0] == 404
        await here.ask("DELETE", CRD)
        await here.settled()
        assert (await here.ask("GET", CRD))[0] == 404

    in_neighbourhood(story)


def test_a_name_that_becomes_free_goes_to_who_waits_for_it() -> None:
    async def story(here: Neighbourhood) -> None:
        await here.made(DEFINITIONS, definition())
        waiting = definition(kind="Gadget", names={"kind": "Widget", "singular": "gadget"})
        assert conditions(await here.made(DEFINITIONS, waiting))["Established"][0] == "False"
        await here.ask("DELETE", CRD)
        await here.settled()
        _, found = await here.ask("GET", f"{DEFINITIONS}/gadgets.example.com")
        assert conditions(found)["Established"][0] == "True"
        assert (await here.ask("GET", "/apis/example.com/v1/gadgets"))[0] == 200

    in_neighbourhood(story)


def test_objects_of_custom_kinds_own_and_are_owned() -> None:
    async def story(here: Neighbourhood) -> None:
        await here.made(DEFINITIONS, definition())
        root = await here.made(WIDGETS, widget("root"))
        child = await here.made(WIDGETS, owned("child", owner(root)))
        await here.config_map("grandchild", owner(child))
        await here.settled()
        assert await here.present("grandchild") == ["grandchild"]
        await here.ask("DELETE", f"{WIDGETS}/root", {"propagationPolicy": "Foreground"})
        await here.settled()
        assert (await here.ask("GET", WIDGETS))[1]["items"] == []
        assert await here.present("grandchild") == []

    in_neighbourhood(story)


def test_a_namespace_is_emptied_of_custom_kinds_too() -> None:
    async def story(here: Neighbourhood) -> None:
        await here.made(DEFINITIONS, definition())
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await here.made("/api/v1/namespaces", space)
        await here.made(WIDGETS.replace("default", "team"), widget())
        await here.ask("DELETE", "/api/v1/namespaces/team")
        await here.settled()
        assert (await here.ask("GET", "/api/v1/namespaces/team"))[0] == 404
        assert (await here.ask("GET", "/apis/example.com/v1/widgets"))[1]["items"] == []

    in_neighbourhood(story)
