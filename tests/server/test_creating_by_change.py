"""A PUT or an apply that creates needs the verb create too, not only that of a change."""

from __future__ import annotations

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.granting import ANN, grant, rule, server_with_ann
from testkit.api_server.running_server import WORKLOADS, workload

LEASES = "coordination.k8s.io"
LEASE = f"/apis/{LEASES}/v1/namespaces/default/leases/one"
APPLY = {"content-type": "application/apply-patch+yaml"}


async def test_a_put_creates_only_for_those_who_may_create() -> None:
    lease: JsonObject = {"metadata": {"name": "one"}, "spec": {}}
    async with server_with_ann() as server:
        await grant(server, rule("update", "leases", group=LEASES))
        refused = await server.status("PUT", LEASE, lease, token=ANN)
        assert 'cannot create resource "leases"' in refused["message"]
        await grant(server, rule("create", "leases", group=LEASES), name="more")
        assert (await server.ask("PUT", LEASE, lease, token=ANN)).status == 201


async def test_an_apply_creates_only_for_those_who_may_create() -> None:
    web = f"{WORKLOADS}/web"
    async with server_with_ann() as server:
        await grant(server, rule("patch", "workloads"))
        options = {"token": ANN, "fieldManager": "ann"}
        refused = await server.status("PATCH", web, workload(), headers=APPLY, **options)
        assert 'cannot create resource "workloads"' in refused["message"]
        await grant(server, rule("create", "workloads"), name="more")
        await grant(
            server, rule("use", "networks", group="networking.datumapis.com"), name="network"
        )
        made = await server.ask("PATCH", web, workload(), headers=APPLY, **options)
        assert made.status == 201
