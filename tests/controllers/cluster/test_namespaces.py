"""Terminating namespaces are emptied, and every namespace keeps its default objects."""

from __future__ import annotations

from tests.controllers.cluster_fixture import CORE, ClusterFixture, with_cluster_controllers

HELD = ["example.com/hold"]


async def conditions(here: ClusterFixture, path: str) -> dict[str, tuple[str, str, str, str]]:
    _, found = await here.request("GET", path)
    assert found["status"]["phase"] == "Terminating"
    parts = ("status", "reason", "message", "lastTransitionTime")
    return {
        c["type"]: (c[parts[0]], c[parts[1]], c[parts[2]], c[parts[3]])
        for c in found["status"]["conditions"]
    }


def test_a_terminating_namespace_is_emptied_and_deleted() -> None:
    async def story(here: ClusterFixture) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await here.create("/api/v1/namespaces", space)
        inside = "/api/v1/namespaces/team/configmaps"
        for number in range(120):
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            await here.create(inside, obj)
        held = {"name": "held", "finalizers": HELD}
        await here.create(inside, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": held})
        await here.request("DELETE", "/api/v1/namespaces/team")
        await here.settle()
        assert await here.existing_config_maps("c0", "c119", "held", namespace="team") == ["held"]
        await here.request("PATCH", f"{inside}/held", {"metadata": {"finalizers": None}})
        await here.settle()
        assert (await here.request("GET", "/api/v1/namespaces/team"))[0] == 404

    with_cluster_controllers(story)


def test_a_terminating_namespace_reports_what_remains_only_after_changes() -> None:
    async def story(here: ClusterFixture) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        await here.create("/api/v1/namespaces", space)
        inside = "/api/v1/namespaces/team"
        for name in ("one", "two"):
            metadata = {"name": name, "finalizers": HELD}
            obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await here.create(f"{inside}/configmaps", obj)
        await here.request("DELETE", inside)
        await here.settle()
        events = await conditions(here, inside)
        assert events["NamespaceContentRemaining"][:2] == ("True", "SomeResourcesRemain")
        assert "configmaps has 2 resource instances" in events["NamespaceContentRemaining"][2]
        assert events["NamespaceFinalizersRemaining"][:2] == ("True", "SomeFinalizersRemain")
        assert "example.com/hold in 2" in events["NamespaceFinalizersRemaining"][2]
        version = here.planes.store.version("hub")
        for _ in range(10):
            await here.settle()
        assert here.planes.store.version("hub") == version, "nothing changed, nothing is written"
        release = {"metadata": {"finalizers": None}}
        await here.request("PATCH", f"{inside}/configmaps/one", release)
        await here.settle()
        later = await conditions(here, inside)
        assert "configmaps has 1 resource instances" in later["NamespaceContentRemaining"][2]
        assert later["NamespaceContentRemaining"][3] == events["NamespaceContentRemaining"][3]
        await here.request("PATCH", f"{inside}/configmaps/two", release)
        await here.settle()
        assert (await here.request("GET", inside))[0] == 404

    with_cluster_controllers(story)


def test_every_namespace_keeps_its_default_account_and_certificates() -> None:
    async def story(here: ClusterFixture) -> None:
        await here.settle()
        authority = f"{CORE}/configmaps/kube-root-ca.crt"
        _, found = await here.request("GET", authority)
        assert found["data"] == {"ca.crt": "CERTIFICATE"}
        await here.request("DELETE", f"{CORE}/serviceaccounts/default")
        await here.request("PATCH", authority, {"data": {"ca.crt": "forged"}})
        await here.settle()
        assert (await here.request("GET", f"{CORE}/serviceaccounts/default"))[0] == 200
        assert (await here.request("GET", authority))[1]["data"] == {"ca.crt": "CERTIFICATE"}

    with_cluster_controllers(story)
