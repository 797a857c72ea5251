"""Dependents follow their owners: in the background, in the foreground, or not at all."""

from __future__ import annotations

import asyncio
import logging

import pytest

from datum_compute.api.exchange import Request, Response
from tests.controllers.neighbourhood import CORE, Neighbourhood, in_neighbourhood, owner

FOREGROUND = {"propagationPolicy": "Foreground"}
ORPHAN = {"propagationPolicy": "Orphan"}
HELD = ["example.com/hold"]


def test_dependents_go_with_their_owner_all_the_way_down() -> None:
    async def story(here: Neighbourhood) -> None:
        first = await here.config_map("first")
        second = await here.config_map("second", owner(first))
        await here.config_map("third", owner(second))
        await here.config_map("other")
        await here.settled()
        assert len(await here.present("first", "second", "third", "other")) == 4
        await here.ask("DELETE", f"{CORE}/configmaps/first")
        await here.settled()
        assert await here.present("first", "second", "third", "other") == ["other"]

    in_neighbourhood(story)


def test_an_owner_that_never_existed_means_delete() -> None:
    async def story(here: Neighbourhood) -> None:
        first = await here.config_map("first")
        await here.config_map("lost", owner(first, uid="nobody"))
        await here.config_map("stranger", {**owner(first), "kind": "Unheard", "uid": "x"})
        await here.settled()
        assert await here.present("first", "lost", "stranger") == ["first", "stranger"]

    in_neighbourhood(story)


def test_an_owner_in_another_namespace_is_none() -> None:
    async def story(here: Neighbourhood) -> None:
        for name in ("one", "two"):
            meta = {"metadata": {"name": name}}
            await here.made("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", **meta})
        _, namespace = await here.ask("GET", "/api/v1/namespaces/one")
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        robot = await here.made("/api/v1/namespaces/one/serviceaccounts", account)
        await here.config_map("of-robot", owner(robot))
        await here.config_map("of-namespace", owner(namespace))
        await here.settled()
        assert await here.present("of-robot", "of-namespace") == ["of-namespace"]

    in_neighbourhood(story)


def test_a_dependent_stays_while_one_owner_lives_and_forgets_the_others() -> None:
    async def story(here: Neighbourhood) -> None:
        first, second = await here.config_map("first"), await here.config_map("second")
        await here.config_map("child", owner(first), owner(second))
        await here.ask("DELETE", f"{CORE}/configmaps/first")
        await here.settled()
        _, child = await here.ask("GET", f"{CORE}/configmaps/child")
        assert [o["name"] for o in child["metadata"]["ownerReferences"]] == ["second"]
        await here.ask("DELETE", f"{CORE}/configmaps/second")
        await here.settled()
        assert await here.present("child") == []

    in_neighbourhood(story)


def test_in_the_foreground_the_owner_goes_after_those_that_block_it() -> None:
    async def story(here: Neighbourhood) -> None:
        first = await here.config_map("first")
        blocking = owner(first, blockOwnerDeletion=True)
        await here.config_map("blocks", blocking, finalizers=HELD)
        await here.config_map("loose", owner(first), finalizers=HELD)
        status, marked = await here.ask("DELETE", f"{CORE}/configmaps/first", FOREGROUND)
        assert (status, marked["metadata"]["finalizers"]) == (200, ["foregroundDeletion"])
        await here.settled()
        assert len(await here.present("first", "blocks", "loose")) == 3
        for name in ("blocks", "loose"):
            _, child = await here.ask("GET", f"{CORE}/configmaps/{name}")
            assert child["metadata"]["deletionTimestamp"]
        await here.ask("PATCH", f"{CORE}/configmaps/blocks", {"metadata": {"finalizers": None}})
        await here.settled()
        assert await here.present("first", "blocks", "loose") == ["loose"]

    in_neighbourhood(story)


def test_in_the_foreground_a_whole_tree_goes_from_its_leaves() -> None:
    async def story(here: Neighbourhood) -> None:
        first = await here.config_map("first")
        second = await here.config_map("second", owner(first, blockOwnerDeletion=True))
        leaf = owner(second, blockOwnerDeletion=True)
        await here.config_map("third", leaf, finalizers=HELD)
        await here.ask("DELETE", f"{CORE}/configmaps/first", FOREGROUND)
        await here.settled()
        assert len(await here.present("first", "second", "third")) == 3
        await here.ask("PATCH", f"{CORE}/configmaps/third", {"metadata": {"finalizers": None}})
        await here.settled()
        assert await here.present("first", "second", "third") == []

    in_neighbourhood(story)


def test_orphans_lose_their_owner_and_stay() -> None:
    async def story(here: Neighbourhood) -> None:
        first, second = await here.config_map("first"), await here.config_map("second")
        await here.config_map("child", owner(first))
        await here.config_map("shared", owner(first), owner(second))
        await here.ask("DELETE", f"{CORE}/configmaps/first", ORPHAN)
        await here.settled()
        assert await here.present("first", "child", "shared") == ["child", "shared"]
        _, child = await here.ask("GET", f"{CORE}/configmaps/child")
        assert "ownerReferences" not in child["metadata"]
        _, shared = await here.ask("GET", f"{CORE}/configmaps/shared")
        assert [o["name"] for o in shared["metadata"]["ownerReferences"]] == ["second"]

    in_neighbourhood(story)


def test_an_owner_that_is_recreated_is_another_owner() -> None:
    async def story(here: Neighbourhood) -> None:
        first = await here.config_map("first")
        await here.config_map("child", owner(first), finalizers=HELD)
        await here.ask("DELETE", f"{CORE}/configmaps/first")
        await here.config_map("first")
        await here.settled()
        _, child = await here.ask("GET", f"{CORE}/configmaps/child")
        assert child["metadata"]["deletionTimestamp"]

    in_neighbourhood(story)


def test_a_settled_plane_costs_no_requests() -> None:
    async def story(here: Neighbourhood) -> None:
        first = await here.config_map("first")
        await here.config_map("child", owner(first))
        await here.settled()
        seen: list[Request] = []

        async def note(request: Request) -> Response | None:
            seen.append(request)
            return None

        here.planes.intercept = note
        version = here.planes.store.version("hub")
        for _ in range(10):
            await here.settled()
        assert here.planes.store.version("hub") == version
        assert [r.path for r in seen if "watch" not in r.query] == []

    in_neighbourhood(story)


def test_a_terminating_namespace_is_emptied_and_goes() -> None:
    async def story(here: Neighbourhood) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await here.made("/api/v1/namespaces", space)
        inside = "/api/v1/namespaces/team/configmaps"
        for number in range(120):
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            await here.made(inside, obj)
        held = {"name": "held", "finalizers": HELD}
        await here.made(inside, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
        await here.ask("DELETE", "/api/v1/namespaces/team")
        await here.settled()
        assert await here.present("c0", "c119", "held", namespace="team") == ["held"]
        await here.ask("PATCH", f"{inside}/held", {"metadata": {"finalizers": None}})
        await here.settled()
        assert (await here.ask("GET", "/api/v1/namespaces/team"))[0] == 404

    in_neighbourhood(story)


def test_a_namespace_that_cannot_go_says_what_holds_it_and_only_when_that_changes() -> None:
    async def story(here: Neighbourhood) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await here.made("/api/v1/namespaces", space)
        inside = "/api/v1/namespaces/team"
        for name in ("one", "two"):
            metadata = {"name": name, "finalizers": HELD}
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await here.made(f"{inside}/configmaps", obj)
        await here.ask("DELETE", inside)
        await here.settled()
        told = await conditions(here, inside)
        assert told["NamespaceContentRemaining"][:2] == ("True", "SomeResourcesRemain")
        assert "configmaps has 2 resource instances" in told["NamespaceContentRemaining"][2]
        assert told["NamespaceFinalizersRemaining"][:2] == ("True", "SomeFinalizersRemain")
        assert "example.com/hold in 2" in told["NamespaceFinalizersRemaining"][2]
        version = here.planes.store.version("hub")
        for _ in range(10):
            await here.settled()
        assert here.planes.store.version("hub") == version, "nothing changed, nothing is written"
        release = {"metadata": {"finalizers": None}}
        await here.ask("PATCH", f"{inside}/configmaps/one", release)
        await here.settled()
        later = await conditions(here, inside)
        assert "configmaps has 1 resource instances" in later["NamespaceContentRemaining"][2]
        assert later["NamespaceContentRemaining"][3] == told["NamespaceContentRemaining"][3]
        await here.ask("PATCH", f"{inside}/configmaps/two", release)
        await here.settled()
        assert (await here.ask("GET", inside))[0] == 404

    in_neighbourhood(story)


async def conditions(here: Neighbourhood, path: str) -> dict[str, tuple[str, str, str, str]]:
    _, found = await here.ask("GET", path)
    assert found["status"]["phase"] == "Terminating"
    parts = ("status", "reason", "message", "lastTransitionTime")
    return {
        c["type"]: (c[parts[0]], c[parts[1]], c[parts[2]], c[parts[3]])
        for c in found["status"]["conditions"]
    }


def test_every_namespace_has_its_account_and_certificates_and_keeps_them() -> None:
    async def story(here: Neighbourhood) -> None:
        await here.settled()
        authority = f"{CORE}/configmaps/kube-root-ca.crt"
        _, found = await here.ask("GET", authority)
        assert found["data"] == {"ca.crt": "CERTIFICATE"}
        await here.ask("DELETE", f"{CORE}/serviceaccounts/default")
        await here.ask("PATCH", authority, {"data": {"ca.crt": "forged"}})
        await here.settled()
        assert (await here.ask("GET", f"{CORE}/serviceaccounts/default"))[0] == 200
        assert (await here.ask("GET", authority))[1]["data"] == {"ca.crt": "CERTIFICATE"}

    in_neighbourhood(story)


ODD_OWNERS = [
    {"apiVersion": "v1", "kind": "Namespace", "name": "never-was", "uid": "u"},
    {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "another"},
    {"apiVersion": "v1", "kind": "ConfigMap", "name": "inside", "uid": "u"},
    {"apiVersion": "v2", "kind": "Namespace", "name": "never-was", "uid": "u"},
    {"apiVersion": "a/b/c", "kind": "Unheard", "name": "x", "uid": "u"},
]


@pytest.mark.parametrize("odd", ODD_OWNERS, ids=lambda odd: f"{odd['apiVersion']}-{odd['kind']}")
def test_what_may_not_go_stays_quietly_whoever_its_owner_is(
    odd: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def story(here: Neighbourhood) -> None:
        owned = {"metadata": {"ownerReferences": [odd]}}
        status, _ = await here.ask("PATCH", CORE, owned)
        assert status == 200
        await asyncio.sleep(3600)
        status, kept = await here.ask("GET", CORE)
        assert (status, kept["status"]["phase"]) == (200, "Active")

    in_neighbourhood(story)
    loud = [r for r in caplog.records if r.exc_info or r.levelno > logging.WARNING]
    assert [record.getMessage() for record in loud] == []
    assert len(caplog.records) <= 6, "a line every ten minutes is enough"


def test_an_owner_that_cannot_be_reached_is_told_of() -> None:
    async def story(here: Neighbourhood) -> None:
        inside = await here.config_map("inside")
        meta = {"name": "outside", "ownerReferences": [owner(inside)]}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        await here.made(path, {**role, "metadata": meta})
        await here.settled()
        await here.ask("DELETE", f"{CORE}/configmaps/inside")
        await here.settled()
        assert (await here.ask("GET", f"{path}/outside"))[0] == 200
        (told,) = set(here.told)  # the same words are one Event
        assert (told.reason, told.object.name) == ("OwnerRefInvalidNamespace", "outside")
        assert "metadata.ownerReferences" in told.message

    in_neighbourhood(story)
