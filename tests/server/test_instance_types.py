"""Instance types: the server validates their lifecycle and the workloads that use them."""

from __future__ import annotations

from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import timestamp
from testkit.api_server.running_server import (
    PROJECT,
    InProcessServer,
    causes,
    running_server,
    workload,
)

TYPES = "/apis/compute.datumapis.com/v1alpha/instancetypes"
WORKLOADS = f"{PROJECT}/apis/compute.datumapis.com/v1alpha/namespaces/default/workloads"
FIELD = "spec.template.spec.runtime.resources.instanceType"


def workload_of_type(size: str, **more: Any) -> JsonObject:
    made = workload(**more)
    made["spec"]["template"]["spec"]["runtime"]["resources"] = {"instanceType": size}
    return made


async def keep(server: InProcessServer, name: str, *, cpu: str = "1", prefix: str = "") -> None:
    spec = {"resources": {"cpu": cpu, "memory": "2Gi"}}
    kind = {"apiVersion": "compute.datumapis.com/v1alpha", "kind": "InstanceType"}
    await server.json("POST", prefix + TYPES, {**kind, "metadata": {"name": name}, "spec": spec})


async def retire(server: InProcessServer, name: str, *phases: str) -> None:
    for phase in phases:
        lifecycle = {"phase": phase, "replacementInstanceType": "d1-standard-2"}
        await server.merge(f"{TYPES}/{name}", {"spec": {"lifecycle": lifecycle}})


async def test_an_unknown_type_is_rejected_on_create_and_update(server: InProcessServer) -> None:
    await keep(server, "d1-standard-2")
    refused = await server.status("POST", WORKLOADS, workload_of_type("d1-standard-9"))
    assert refused["code"] == 422
    assert causes(refused) == {FIELD: "FieldValueNotSupported"}
    await server.json("POST", WORKLOADS, workload_of_type("datumcloud/d1-standard-2"))
    patch = {"spec": workload_of_type("d1-standard-9")["spec"]}
    assert causes(await server.patch_refused(f"{WORKLOADS}/web", patch)) == {
        FIELD: "FieldValueNotSupported"
    }


async def test_a_deprecated_type_is_a_warning_and_a_disabled_one_is_rejected(
    server: InProcessServer,
) -> None:
    await keep(server, "d1-standard-2")
    await keep(server, "old")
    await server.json("POST", WORKLOADS, workload_of_type("old", name="early"))
    await retire(server, "old", "Deprecated")
    warned = await server.ask("POST", WORKLOADS, workload_of_type("old"))
    assert warned.status == 201
    assert "use d1-standard-2 instead" in warned.headers["warning"]
    await retire(server, "old", "Disabled")
    refused = await server.status("POST", WORKLOADS, workload_of_type("old", name="late"))
    assert causes(refused) == {FIELD: "FieldValueForbidden"}
    placements = [{"name": "main", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 2}}]
    scaled = await server.merge(f"{WORKLOADS}/early", {"spec": {"placements": placements}})
    assert scaled["spec"]["placements"][0]["scaleSettings"]["minReplicas"] == 2


async def test_a_change_of_labels_does_not_check_the_type(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload_of_type("d1-standard-2"))
    await keep(server, "other")
    labelled = await server.merge(f"{WORKLOADS}/web", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["labels"] == {"a": "b"}


async def test_a_deprecated_type_cannot_be_disabled_during_its_grace_period() -> None:
    async with running_server(deprecation_grace_s=3600.0) as server:
        await keep(server, "d1-standard-2")
        await keep(server, "old")
        await retire(server, "old", "Deprecated")
        status = {"status": {"deprecatedAt": timestamp(server.clock.now_s)}}
        await server.merge(f"{TYPES}/old/status", status)
        disabled = {"spec": {"lifecycle": {"phase": "Disabled"}}}
        refused = await server.patch_refused(f"{TYPES}/old", disabled)
        assert causes(refused) == {"spec.lifecycle.phase": "FieldValueForbidden"}
        server.clock.now_s += 3600
        await server.merge(f"{TYPES}/old", disabled)


async def test_a_type_can_be_deleted_only_if_it_is_disabled(
    server: InProcessServer,
) -> None:
    await keep(server, "d1-standard-2")
    await keep(server, "old")
    for phase in ("Active", "Deprecated"):
        refused = await server.status("DELETE", f"{TYPES}/old")
        assert causes(refused) == {"spec.lifecycle.phase": "FieldValueForbidden"}
        assert phase in refused["message"]
        await retire(server, "old", {"Active": "Deprecated", "Deprecated": "Disabled"}[phase])
    await server.json("DELETE", f"{TYPES}/old")
    all_of_them = await server.status("DELETE", TYPES)
    assert causes(all_of_them) == {"spec.lifecycle.phase": "FieldValueForbidden"}


async def test_a_copy_can_be_deleted_if_its_original_is_missing_or_replaced(
    server: InProcessServer,
) -> None:
    """The controller of the copies needs no additional permission for that."""
    await keep(server, "d1-standard-2")
    await keep(server, "stale", prefix=PROJECT)
    await keep(server, "d1-standard-2", prefix=PROJECT)
    assert (await server.status("DELETE", f"{PROJECT}{TYPES}/d1-standard-2"))["code"] == 422
    await server.json("DELETE", f"{PROJECT}{TYPES}/stale")
    await keep(server, "other", cpu="4", prefix=PROJECT)
    await keep(server, "other")
    await server.json("DELETE", f"{PROJECT}{TYPES}/other")
