"""POST: fields that the server sets, and objects that it rejects."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.http import MERGE_PATCH
from datum_compute.api.meta.codec import encode
from testkit.api_server.granting import ANN, grant, rule, server_with_ann
from testkit.api_server.running_server import (
    COMPUTE,
    WORKLOADS,
    InProcessServer,
    causes,
    namespace,
    workload,
)

CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"


async def test_the_server_sets_uid_time_generation_and_version(server: InProcessServer) -> None:
    response = await server.ask("POST", WORKLOADS, workload())
    assert response.status == 201
    created = await server.json("GET", f"{WORKLOADS}/web")
    assert response.body == encode(created) + b"\n"
    metadata = created["metadata"]
    assert metadata["uid"].startswith("uid-")
    assert metadata["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert metadata["generation"] == 1
    assert metadata["namespace"] == "default"
    assert metadata["resourceVersion"] == str(server.store.version("platform"))


async def test_fields_of_the_server_are_ignored_in_a_request(server: InProcessServer) -> None:
    sent = workload(
        uid="mine",
        generation=7,
        creationTimestamp="2001-01-01T00:00:00Z",
        deletionTimestamp="2001-01-01T00:00:00Z",
        managedFields=[{"manager": "x"}],
        selfLink="/x",
    )
    sent["status"] = {"replicas": 5}
    created = await server.json("POST", WORKLOADS, sent, fieldValidation="Strict")
    metadata = created["metadata"]
    assert metadata["uid"] != "mine"
    assert metadata["generation"] == 1
    assert metadata["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert not {"deletionTimestamp", "selfLink"} & set(metadata)
    assert [entry["manager"] for entry in metadata["managedFields"]] == ["unknown"]
    assert "status" not in created


async def test_a_status_is_stored_on_request(server: InProcessServer) -> None:
    """A copy is complete after one write, and its fields have the owners of two writes."""
    agent = {"headers": {"user-agent": "copier/1"}}
    sent = {**workload(), "status": {"replicas": 5, "odd": 1}}
    kept = await server.json("POST", WORKLOADS, sent, withStatus="true", **agent)
    assert (kept["status"], kept["metadata"]["generation"]) == ({"replicas": 5}, 1)
    patch = {**agent["headers"], "content-type": MERGE_PATCH}
    await server.json("POST", WORKLOADS, workload("two"), **agent)
    status = {"status": {"replicas": 5}}
    two = await server.json("PATCH", f"{WORKLOADS}/two/status", status, headers=patch)
    assert kept["metadata"]["managedFields"] == two["metadata"]["managedFields"]


@pytest.mark.parametrize(
    ("status", "field"),
    [({"replicas": "many"}, "status.replicas"), (["x"], "status"), (5, "status")],
)
async def test_a_status_that_is_not_valid_is_422_with_its_field(
    server: InProcessServer, status: Any, field: str
) -> None:
    sent = {**workload(), "status": status}
    refused = await server.status("POST", WORKLOADS, sent, withStatus="true")
    assert refused["code"] == 422
    assert list(causes(refused)) == [field]


async def test_dropped_status_fields_of_a_create_have_no_owner(server: InProcessServer) -> None:
    """Otherwise a later apply of these fields would conflict."""
    sent = {**workload(), "status": {"replicas": None}}
    made = await server.json("POST", WORKLOADS, sent, withStatus="true")
    _, of_status = made["metadata"]["managedFields"]
    assert (made["status"], of_status["fieldsV1"]) == ({}, {"f:status": {}})
    home = {**namespace("home"), "status": {"phase": "Terminating"}}
    made = await server.json("POST", "/api/v1/namespaces", home, withStatus="true")
    assert made["status"] == {"phase": "Active"}
    assert [e.get("subresource", "") for e in made["metadata"].get("managedFields", [])] in (
        [],
        [""],
    )


async def test_a_create_with_a_status_needs_permission_to_write_the_status() -> None:
    sent = {**workload(), "status": {"replicas": 5}}
    async with server_with_ann() as server:
        network = rule("use", "networks", group="networking.datumapis.com")
        await grant(server, rule("create", "workloads"), network)
        refused = await server.ask("POST", WORKLOADS, sent, token=ANN, withStatus="true")
        assert refused.status == 403
        assert b"workloads/status" in refused.body
        assert "status" not in await server.json("POST", WORKLOADS, sent, token=ANN)


async def test_defaults_of_the_schema_are_stored(server: InProcessServer) -> None:
    created = await server.json("POST", WORKLOADS, workload())
    scale = created["spec"]["placements"][0]["scaleSettings"]
    assert scale["instanceManagementPolicy"] == "OrderedReady"


async def test_an_existing_name_is_409_already_exists(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload())
    status = await server.status("POST", WORKLOADS, workload())
    assert (status["code"], status["reason"]) == (409, "AlreadyExists")
    assert status["message"] == 'workloads.compute.datumapis.com "web" already exists'
    assert status["details"] == {
        "name": "web",
        "group": "compute.datumapis.com",
        "kind": "workloads",
    }


async def test_generate_name_adds_a_suffix_and_retries_if_the_name_exists(
    server: InProcessServer,
) -> None:
    server.suffixes.names = ["aaaaa", "aaaaa", "aaaaa", "bbbbb"]
    sent = workload()
    sent["metadata"] = {"generateName": "web-"}
    first = await server.json("POST", WORKLOADS, sent)
    second = await server.json("POST", WORKLOADS, sent)
    assert (first["metadata"]["name"], second["metadata"]["name"]) == ("web-aaaaa", "web-bbbbb")
    assert first["metadata"]["generateName"] == "web-"


async def test_generate_name_fails_after_eight_attempts(server: InProcessServer) -> None:
    server.suffixes.names = ["aaaaa"] * 9
    sent = workload()
    sent["metadata"] = {"generateName": "web-"}
    await server.json("POST", WORKLOADS, sent)
    assert (await server.status("POST", WORKLOADS, sent))["reason"] == "AlreadyExists"
    assert server.suffixes.names == []


async def test_a_generated_name_is_at_most_63_characters(server: InProcessServer) -> None:
    sent = workload()
    sent["metadata"] = {"generateName": "a" * 80}
    created = await server.json("POST", WORKLOADS, sent)
    assert len(created["metadata"]["name"]) == 63


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({}, "metadata.name"),
        ({"name": ""}, "metadata.name"),
        ({"name": "Web"}, "metadata.name"),
        ({"name": "-web"}, "metadata.name"),
        ({"name": "web."}, "metadata.name"),
        ({"name": "web\n"}, "metadata.name"),
        ({"name": "../web"}, "metadata.name"),
        ({"name": "a" * 254}, "metadata.name"),
        ({"name": "web", "labels": {"a b": "c"}}, "metadata.labels"),
        ({"name": "web", "labels": {"a/b/c": "d"}}, "metadata.labels"),
        ({"name": "web", "labels": {"a": "b c"}}, "metadata.labels"),
        ({"name": "web", "labels": {"a": "b" * 64}}, "metadata.labels"),
        ({"name": "web", "annotations": {"a b": "c"}}, "metadata.annotations"),
        ({"name": "web", "annotations": {"a": "x" * 262_144}}, "metadata.annotations"),
        ({"name": "web", "finalizers": ["not valid"]}, "metadata.finalizers"),
    ],
)
async def test_metadata_that_is_not_valid_is_422_with_its_field(
    server: InProcessServer, metadata: dict[str, Any], field: str
) -> None:
    status = await server.status("POST", CLUSTERS, {
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": metadata,
    })  # fmt: skip
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert field in causes(status)
    assert status["details"]["kind"] == "Cluster"


async def test_metadata_at_its_limits_is_accepted(server: InProcessServer) -> None:
    metadata = {
        "name": "a" * 253,
        "labels": {"example.com/A_b.c": "", "x" * 63: "y" * 63},
        "annotations": {"Example.com/x": "\u00e9 \n", "a": "x" * 250_000},
        "finalizers": ["kubernetes"],
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "1", "controller": True},
            {"apiVersion": "v1", "kind": "X", "name": "y", "uid": "2"},
        ],
    }
    created = await server.json("POST", CLUSTERS, {
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": metadata,
    })  # fmt: skip
    assert metadata.items() <= created["metadata"].items()


async def test_owners_must_be_complete_and_at_most_one_is_the_controller(
    server: InProcessServer,
) -> None:
    owner = {"apiVersion": "v1", "kind": "X", "name": "", "uid": "1", "controller": True}
    status = await server.status("POST", WORKLOADS, workload(ownerReferences=[owner, owner]))
    assert set(causes(status)) == {
        "metadata.ownerReferences[0].name",
        "metadata.ownerReferences[1].name",
        "metadata.ownerReferences",
    }


async def test_every_error_of_one_object_is_reported_together(server: InProcessServer) -> None:
    sent = workload(labels={"a": "b c"})
    sent["spec"]["placements"][0]["scaleSettings"]["minReplicas"] = 0
    del sent["spec"]["template"]
    status = await server.status("POST", WORKLOADS, sent)
    assert causes(status) == {
        "metadata.labels": "FieldValueInvalid",
        "spec.placements[0].scaleSettings.minReplicas": "FieldValueInvalid",
        "spec.template": "FieldValueRequired",
    }
    assert status["message"].startswith('Workload.compute.datumapis.com "web" is invalid: [')


async def test_the_message_of_one_error_equals_that_of_kubernetes(server: InProcessServer) -> None:
    sent = workload()
    del sent["spec"]
    status = await server.status("POST", WORKLOADS, sent)
    assert status["message"] == (
        'Workload.compute.datumapis.com "web" is invalid: spec: Required value'
    )


async def test_admission_runs_on_create(server: InProcessServer) -> None:
    sent = workload()
    sent["spec"]["placements"][0]["cityCodes"] = ["dfw", "ord"]
    created = await server.json("POST", WORKLOADS, sent)
    assert created["spec"]["placements"][0]["cityCodes"] == ["DFW", "ORD"]
    sent["spec"]["placements"][0]["cityCodes"] = ["dfw", "DFW"]
    status = await server.status("POST", WORKLOADS, sent)
    assert causes(status) == {"spec.placements[0].cityCodes[1]": "FieldValueDuplicate"}


async def test_the_namespace_must_exist(server: InProcessServer) -> None:
    path = f"{COMPUTE}/namespaces/none/workloads"
    status = await server.status("POST", path, workload())
    assert (status["code"], status["message"]) == (404, 'namespaces "none" not found')


async def test_the_namespace_of_the_body_must_match_the_path(server: InProcessServer) -> None:
    status = await server.status("POST", WORKLOADS, workload(namespace="other"))
    assert status["code"] == 400
    assert (await server.ask("POST", WORKLOADS, workload(namespace="default"))).status == 201
    named = {**namespace("x"), "metadata": {"name": "x", "namespace": "default"}}
    assert (await server.ask("POST", "/api/v1/namespaces", named)).status == 400


async def test_a_kind_that_does_not_match_the_path_is_400(server: InProcessServer) -> None:
    other_kind = {**workload(), "kind": "Instance"}
    other_version = {**workload(), "apiVersion": "compute.datumapis.com/v1"}
    without_kind = {k: v for k, v in workload().items() if k != "kind"}
    for sent in (other_kind, other_version, without_kind):
        assert (await server.status("POST", WORKLOADS, sent))["code"] == 400


async def test_a_version_on_create_is_400(server: InProcessServer) -> None:
    sent = workload(resourceVersion="5")
    assert (await server.status("POST", WORKLOADS, sent))["code"] == 400


async def test_a_dry_run_returns_the_object_and_stores_nothing(server: InProcessServer) -> None:
    before = server.store.version("platform")
    created = await server.json("POST", WORKLOADS, workload(), dryRun="All")
    assert created["metadata"]["uid"]
    assert (await server.ask("GET", f"{WORKLOADS}/web")).status == 404
    assert server.store.version("platform") == before
    await server.json("POST", WORKLOADS, workload())
    again = await server.status("POST", WORKLOADS, workload(), dryRun="All")
    assert again["reason"] == "AlreadyExists"
    assert (await server.status("POST", WORKLOADS, workload(), dryRun="Some"))["code"] == 422


@pytest.mark.parametrize(
    "content_type",
    ["application/cbor", "application/octet-stream", "text/plain"],
)
async def test_the_error_of_an_unknown_media_type_lists_the_supported_ones(
    server: InProcessServer, content_type: str
) -> None:
    headers = {"content-type": content_type}
    status = await server.status("POST", WORKLOADS, workload(), headers=headers)
    assert (status["code"], status["reason"]) == (415, "UnsupportedMediaType")
    assert "application/json" in status["message"]


@pytest.mark.parametrize(
    "content_type", ["", "application/json; charset=utf-8", "Application/JSON"]
)
async def test_a_missing_content_type_means_json(
    server: InProcessServer, content_type: str
) -> None:
    headers = {"content-type": content_type}
    assert (await server.ask("POST", WORKLOADS, workload(), headers=headers)).status == 201


async def test_kinds_of_other_projects_keep_unknown_fields(server: InProcessServer) -> None:
    sent = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "dfw"},
        "spec": {"syncMode": "Push", "provider": "x", "taints": [{"key": "a"}]},
    }
    created = await server.json("POST", CLUSTERS, sent, fieldValidation="Strict")
    assert created["spec"]["taints"] == [{"key": "a"}]


async def test_cached_results_of_one_object_are_not_used_for_another(
    server: InProcessServer,
) -> None:
    twins = [await server.json("POST", WORKLOADS, workload(name)) for name in ("a", "b")]
    other = await server.json("POST", WORKLOADS, workload("c", image="web:2"))
    owners = [obj["metadata"]["managedFields"][0]["fieldsV1"] for obj in (*twins, other)]
    assert owners[0] == owners[1] == owners[2]
    assert twins[0]["spec"] == twins[1]["spec"] != other["spec"]
    longer = workload("d")
    longer["spec"]["placements"].append({**longer["spec"]["placements"][0], "name": "more"})
    more = await server.json("POST", WORKLOADS, longer)
    assert more["metadata"]["managedFields"][0]["fieldsV1"] != owners[0]


async def test_a_dry_run_of_a_create_may_carry_a_resource_version(server: InProcessServer) -> None:
    """kubectl diff and others send an object that they have read."""
    sent = workload(resourceVersion="5")
    assert (await server.status("POST", WORKLOADS, sent))["code"] == 400
    tried = await server.json("POST", WORKLOADS, sent, dryRun="All")
    assert "resourceVersion" not in tried["metadata"]
    assert (await server.ask("GET", f"{WORKLOADS}/web")).status == 404
