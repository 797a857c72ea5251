"""Creating the initial roles: edited ones are kept, unchanged ones are updated."""

from __future__ import annotations

from datum_compute.api.meta.codec import canonical_hash
from datum_compute.planes.role_objects import RULES_DIGEST_ANNOTATION
from testkit.api_server.granting import RBAC, ensure_first_roles, rule
from testkit.api_server.running_server import (
    PROJECT,
    running_server,
)


async def test_edited_roles_are_kept_and_deleted_roles_return_at_a_restart() -> None:
    path = f"{PROJECT}{RBAC}/clusterroles"
    async with running_server() as server:
        await ensure_first_roles(server, "project/demo")
        edited = [rule("get", "workloads")]
        await server.merge(f"{path}/project-viewer", {"rules": edited})
        await server.json("DELETE", f"{path}/project-editor")
        before = server.store.version("project/demo")
        await ensure_first_roles(server, "project/demo")
        assert (await server.json("GET", f"{path}/project-viewer"))["rules"] == edited
        assert (await server.json("GET", f"{path}/project-editor"))["rules"]
        assert server.store.version("project/demo") == before + 1
        await ensure_first_roles(server, "project/demo")
        assert server.store.version("project/demo") == before + 1


async def test_rules_of_an_older_release_are_replaced_unless_edited() -> None:
    path = f"{PROJECT}{RBAC}/clusterroles/project-viewer"
    async with running_server() as server:
        await ensure_first_roles(server, "project/demo")
        newest = await server.json("GET", path)
        older = [rule("get", "workloads")]
        for made_with, kept in ((canonical_hash(older), False), ("something else", True)):
            annotations = {RULES_DIGEST_ANNOTATION: made_with}
            await server.merge(path, {"rules": older, "metadata": {"annotations": annotations}})
            await ensure_first_roles(server, "project/demo")
            found = await server.json("GET", path)
            assert found["rules"] == (older if kept else newest["rules"])
