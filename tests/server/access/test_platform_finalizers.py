"""Finalizers of the platform can be removed by operators but not by users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from datum_compute.admission.rules.controller_owned import PROTECTED_FINALIZERS
from datum_compute.api.http import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Response
from datum_compute.api.labels import WORKLOAD_FINALIZER
from datum_compute.api.meta.codec import JsonObject
from datum_compute.app.platform import EVERYTHING
from testkit.api_server.granting import ANN, grant, rule, server_with_ann
from testkit.api_server.running_server import WORKLOADS, InProcessServer, workload

WEB = f"{WORKLOADS}/web"
OWN = "example.com/hold"
EVERY_WRITE = "get create update patch delete"

Write = Callable[[InProcessServer, JsonObject], Awaitable[Response]]


@pytest.fixture
async def guarded() -> AsyncIterator[InProcessServer]:
    """A server with a workload that has finalizers of a user and of the platform."""
    async with server_with_ann() as server:
        await grant(server, rule(EVERY_WRITE, "workloads workloads/status"))
        await grant(server, rule("use", "networks", group="networking.datumapis.com"), name="net")
        await server.json("POST", WORKLOADS, with_finalizers(WORKLOAD_FINALIZER, OWN))
        yield server


def with_finalizers(*finalizers: str) -> JsonObject:
    obj = workload("web")
    obj["metadata"]["finalizers"] = list(finalizers)
    return obj


def write_patch(content_type: str, patch: object) -> Write:
    async def write(server: InProcessServer, _present: JsonObject) -> Response:
        headers = {"content-type": content_type}
        return await server.ask("PATCH", WEB, patch, token=ANN, headers=headers)

    return write


def write_update(finalizers: list[str] | None) -> Write:
    async def write(server: InProcessServer, present: JsonObject) -> Response:
        metadata = {**present["metadata"], "finalizers": finalizers}
        return await server.ask("PUT", WEB, {**present, "metadata": metadata}, token=ANN)

    return write


WRITES: dict[str, Write] = {
    "merge patch to nothing": write_patch(MERGE_PATCH, {"metadata": {"finalizers": None}}),
    "merge patch to others": write_patch(MERGE_PATCH, {"metadata": {"finalizers": [OWN]}}),
    "metadata gone": write_patch(MERGE_PATCH, {"metadata": {"name": "web", "finalizers": []}}),
    "json patch of all": write_patch(
        JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers"}]
    ),
    "json patch of one": write_patch(
        JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers/0"}]
    ),
    "json patch moves it": write_patch(
        JSON_PATCH,
        [{"op": "move", "from": "/metadata/finalizers", "path": "/metadata/annotations"}],
    ),
    "put of none": write_update([]),
    "put of null": write_update(None),
    "put of others": write_update([OWN, "example.com/more"]),
}


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize("how", WRITES)
async def test_no_request_of_a_user_removes_the_finalizer(
    guarded: InProcessServer, how: str, *, terminating: bool
) -> None:
    if terminating:
        await guarded.json("DELETE", WEB)
    answer = await WRITES[how](guarded, await guarded.json("GET", WEB))
    assert answer.status in (400, 422), answer.body
    if how != "json patch moves it":
        assert b"metadata.finalizers: Forbidden: " + WORKLOAD_FINALIZER.encode() in answer.body
        assert b"delete the Workload and wait" in answer.body
    present = await guarded.json("GET", WEB)
    assert present["metadata"]["finalizers"] == [WORKLOAD_FINALIZER, OWN]


async def test_the_manager_that_applied_the_finalizer_cannot_remove_it(
    guarded: InProcessServer,
) -> None:
    async def apply_finalizers(*finalizers: str) -> Response:
        headers = {"content-type": APPLY_PATCH}
        body = with_finalizers(*finalizers)
        body["metadata"]["name"] = "other"
        path = f"{WORKLOADS}/other"
        return await guarded.ask("PATCH", path, body, token=ANN, headers=headers, fieldManager="a")

    assert (await apply_finalizers(WORKLOAD_FINALIZER, OWN)).status == 201
    refused = await apply_finalizers(OWN)
    assert refused.status == 422
    assert b"metadata.finalizers: Forbidden" in refused.body
    assert (await apply_finalizers(WORKLOAD_FINALIZER)).status == 200


async def test_an_update_without_finalizers_keeps_it(
    guarded: InProcessServer,
) -> None:
    """``kubectl replace`` with a file sends no finalizers."""
    version = (await guarded.json("GET", WEB))["metadata"]["resourceVersion"]
    body = workload("web")
    body["metadata"]["resourceVersion"] = version
    body["spec"]["template"]["metadata"] = {"labels": {"new": "one"}}
    replaced = await guarded.json("PUT", WEB, body, token=ANN)
    assert replaced["metadata"]["finalizers"] == [WORKLOAD_FINALIZER]
    assert replaced["spec"]["template"]["metadata"]["labels"] == {"new": "one"}


async def test_users_can_remove_their_own_finalizers(guarded: InProcessServer) -> None:
    headers = {"content-type": MERGE_PATCH}
    for wanted in ([WORKLOAD_FINALIZER], ["a.example.com/b", WORKLOAD_FINALIZER]):
        patch = {"metadata": {"finalizers": wanted}}
        changed = await guarded.json("PATCH", WEB, patch, token=ANN, headers=headers)
        assert changed["metadata"]["finalizers"] == wanted


async def test_the_verb_release_permits_removing_it(guarded: InProcessServer) -> None:
    await grant(guarded, rule("release", "workloads"), name="operators")
    patch = {"metadata": {"finalizers": [OWN]}}
    headers = {"content-type": MERGE_PATCH}
    changed = await guarded.json("PATCH", WEB, patch, token=ANN, headers=headers)
    assert changed["metadata"]["finalizers"] == [OWN]


async def test_the_same_finalizer_on_other_kinds_is_not_guarded(guarded: InProcessServer) -> None:
    """Otherwise a user that added it there could not remove it."""
    await grant(guarded, rule(EVERY_WRITE, "configmaps", group=""), name="maps")
    maps = "/api/v1/namespaces/default/configmaps"
    metadata = {"name": "a", "finalizers": [WORKLOAD_FINALIZER]}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await guarded.json("POST", maps, body, token=ANN)
    headers = {"content-type": MERGE_PATCH}
    patch = {"metadata": {"finalizers": None}}
    await guarded.json("PATCH", f"{maps}/a", patch, token=ANN, headers=headers)


def test_every_finalizer_of_a_controller_is_guarded() -> None:
    held = {f for controller in EVERYTHING for f in controller.finalizers}
    assert held == {f for finalizers in PROTECTED_FINALIZERS.values() for f in finalizers}
