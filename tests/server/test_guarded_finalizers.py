"""Users cannot take away a finalizer of the platform, however they write; operators can."""

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
    """With a workload that both a user and the platform hold; ann may write workloads."""
    async with server_with_ann() as server:
        await grant(server, rule(EVERY_WRITE, "workloads workloads/status"))
        await grant(server, rule("use", "networks", group="networking.datumapis.com"), name="net")
        await server.json("POST", WORKLOADS, with_finalizers(WORKLOAD_FINALIZER, OWN))
        yield server


def with_finalizers(*finalizers: str) -> JsonObject:
    obj = workload("web")
    obj["metadata"]["finalizers"] = list(finalizers)
    return obj


def patching(content_type: str, patch: object) -> Write:
    async def write(server: InProcessServer, _present: JsonObject) -> Response:
        headers = {"content-type": content_type}
        return await server.ask("PATCH", WEB, patch, token=ANN, headers=headers)

    return write


def putting(finalizers: list[str] | None) -> Write:
    async def write(server: InProcessServer, present: JsonObject) -> Response:
        metadata = {**present["metadata"], "finalizers": finalizers}
        return await server.ask("PUT", WEB, {**present, "metadata": metadata}, token=ANN)

    return write


WRITES: dict[str, Write] = {
    "merge patch to nothing": patching(MERGE_PATCH, {"metadata": {"finalizers": None}}),
    "merge patch to others": patching(MERGE_PATCH, {"metadata": {"finalizers": [OWN]}}),
    "metadata gone": patching(MERGE_PATCH, {"metadata": {"name": "web", "finalizers": []}}),
    "json patch of all": patching(JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers"}]),
    "json patch of one": patching(JSON_PATCH, [{"op": "remove", "path": "/metadata/finalizers/0"}]),
    "json patch moves it": patching(
        JSON_PATCH,
        [{"op": "move", "from": "/metadata/finalizers", "path": "/metadata/annotations"}],
    ),
    "put of none": putting([]),
    "put of null": putting(None),
    "put of others": putting([OWN, "example.com/more"]),
}


@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize("how", WRITES)
async def test_no_write_of_a_user_takes_it_away(
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


async def test_who_applied_it_first_cannot_apply_it_away(guarded: InProcessServer) -> None:
    async def applied(*finalizers: str) -> Response:
        headers = {"content-type": APPLY_PATCH}
        body = with_finalizers(*finalizers)
        body["metadata"]["name"] = "other"
        path = f"{WORKLOADS}/other"
        return await guarded.ask("PATCH", path, body, token=ANN, headers=headers, fieldManager="a")

    assert (await applied(WORKLOAD_FINALIZER, OWN)).status == 201
    refused = await applied(OWN)
    assert refused.status == 422
    assert b"metadata.finalizers: Forbidden" in refused.body
    assert (await applied(WORKLOAD_FINALIZER)).status == 200


async def test_a_replacement_that_says_nothing_of_finalizers_keeps_it(
    guarded: InProcessServer,
) -> None:
    """As ``kubectl replace`` with a file does."""
    version = (await guarded.json("GET", WEB))["metadata"]["resourceVersion"]
    body = workload("web")
    body["metadata"]["resourceVersion"] = version
    body["spec"]["template"]["metadata"] = {"labels": {"new": "one"}}
    replaced = await guarded.json("PUT", WEB, body, token=ANN)
    assert replaced["metadata"]["finalizers"] == [WORKLOAD_FINALIZER]
    assert replaced["spec"]["template"]["metadata"]["labels"] == {"new": "one"}


async def test_users_keep_the_say_over_their_own(guarded: InProcessServer) -> None:
    headers = {"content-type": MERGE_PATCH}
    for wanted in ([WORKLOAD_FINALIZER], ["a.example.com/b", WORKLOAD_FINALIZER]):
        patch = {"metadata": {"finalizers": wanted}}
        changed = await guarded.json("PATCH", WEB, patch, token=ANN, headers=headers)
        assert changed["metadata"]["finalizers"] == wanted


async def test_who_holds_the_verb_release_may(guarded: InProcessServer) -> None:
    await grant(guarded, rule("release", "workloads"), name="operators")
    patch = {"metadata": {"finalizers": [OWN]}}
    headers = {"content-type": MERGE_PATCH}
    changed = await guarded.json("PATCH", WEB, patch, token=ANN, headers=headers)
    assert changed["metadata"]["finalizers"] == [OWN]


async def test_elsewhere_the_same_word_guards_nothing(guarded: InProcessServer) -> None:
    """Or a user who put it there would be stuck with it."""
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
