"""The server keeps no memory in proportion to the size of a request after its response."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest

from datum_compute.admission.queries import ListQuery
from datum_compute.api.http import JSON, Request
from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.meta.names import label_value_problem, qualified_name_problem
from datum_compute.api.meta.timestamps import (
    normalize_micro_time,
    normalize_time,
    parse_timestamp,
)
from datum_compute.api.planes import PlaneName
from datum_compute.server.encoding.body import encode_at_version
from datum_compute.server.encoding.request_options import (
    ACCEPT_LENGTH_MAX,
    ACCEPTED_TYPES_MAX,
    content_type,
)
from datum_compute.server.verbs.prepare import list_objects
from datum_compute.store.journal import MemoryJournal, ObjectKey
from testkit.api_server.granting import RBAC, grant, rule, server_with_ann
from testkit.api_server.running_server import TOKEN, WORKLOADS, InProcessServer, workload
from testkit.conformance.plane import PLANE, open_store


class OpenConnection:
    def identify(self, user: str, *, reserved: bool) -> None:
        """Accept every user."""


async def test_an_open_watch_keeps_no_body_and_no_other_headers(server: InProcessServer) -> None:
    body, other, peer = b"x" * 100_000, "y" * 100_000, OpenConnection()
    query = {"watch": "1", "other": "z" * 100_000}
    headers = {"authorization": f"Bearer {TOKEN}", "x-other": other}
    held = (body, other, query, headers, peer)
    before = [sys.getrefcount(part) for part in held]
    response = await server.api.dispatch(Request("GET", WORKLOADS, query, headers, body, peer=peer))
    assert response.stream is not None
    assert [sys.getrefcount(part) for part in held] == before


async def test_a_watch_keeps_no_spaces_that_pad_its_token(server: InProcessServer) -> None:
    header = f"Bearer {' ' * 50_000}{TOKEN}"
    before = sys.getrefcount(header)
    events = await server.watch(WORKLOADS, headers={"authorization": header})
    assert sys.getrefcount(header) == before
    await server.json("POST", WORKLOADS, workload())
    assert await events.names(1) == [("ADDED", "web")]


async def test_the_watch_of_an_impersonated_user_ends_when_that_user_loses_the_grant() -> None:
    async with server_with_ann() as server:
        await grant(server, rule("list watch", "workloads"))
        await grant(server, rule("get", "workloads"), name="other")
        events = await server.watch(WORKLOADS, headers={"impersonate-user": "ann"})
        await server.json("DELETE", f"{RBAC}/clusterrolebindings/other")
        await server.json("POST", WORKLOADS, workload())
        assert await events.names(1) == [("ADDED", "web")]
        await server.json("DELETE", f"{RBAC}/clusterrolebindings/held")
        assert await events.rest() == []


@pytest.mark.parametrize(
    "accept",
    [
        "application/json," + "x" * ACCEPT_LENGTH_MAX,
        "application/json," + "a," * ACCEPTED_TYPES_MAX,
        "," * (ACCEPT_LENGTH_MAX + 1),
    ],
    ids=["long", "many types", "only commas"],
)
async def test_a_long_accept_header_is_rejected_and_not_cached(
    server: InProcessServer, accept: str
) -> None:
    before = sys.getrefcount(accept)
    status = await server.status("GET", WORKLOADS, headers={"accept": accept})
    assert (status["code"], status["reason"]) == (406, "NotAcceptable")
    assert f"at most {ACCEPT_LENGTH_MAX} characters" in status["message"]
    assert sys.getrefcount(accept) == before


async def test_as_many_accepted_types_as_the_limit_are_supported(server: InProcessServer) -> None:
    accept = "a," * (ACCEPTED_TYPES_MAX - 1) + "application/json"
    assert (await server.ask("GET", WORKLOADS, headers={"accept": accept})).status == 200


def test_a_long_content_type_is_not_cached() -> None:
    header = f"application/json; x={'x' * 50_000}"
    before = sys.getrefcount(header)
    assert content_type({"content-type": header}) == JSON
    assert sys.getrefcount(header) == before


@pytest.mark.parametrize("problem_of", [qualified_name_problem, label_value_problem])
@pytest.mark.parametrize("text", ["x" * 50_000, "x" * 50_000 + "/x", "a.b/" + "x" * 50_000])
def test_a_name_that_is_too_long_is_not_cached(problem_of: Callable[[str], str], text: str) -> None:
    before = sys.getrefcount(text)
    assert problem_of(text)
    assert sys.getrefcount(text) == before


@pytest.mark.parametrize("parse", [parse_timestamp, normalize_time, normalize_micro_time])
def test_a_time_that_is_too_long_is_rejected_and_not_cached(parse: Callable[[str], object]) -> None:
    assert parse("2024-01-01T00:00:00.123456789+00:00")
    text = f"2024-01-01T00:00:00.{'1' * 50_000}Z"
    before = sys.getrefcount(text)
    with pytest.raises(ValueError, match="more than 64 characters"):
        parse(text)
    assert sys.getrefcount(text) == before


async def test_only_small_objects_that_admission_reads_are_cached() -> None:
    async with open_store(MemoryJournal()) as store:
        for name, size in (("large", 50_000), ("small", 1)):
            obj = {"metadata": {"name": name}, "data": {"a": "x" * size}}
            key = ObjectKey(CONFIG_MAP.storage, "default", name)
            await store.put(PLANE, key, 0, partial(encode_at_version, obj))
        query = ListQuery(CONFIG_MAP)
        large, small = list_objects(store, PlaneName(PLANE), query)
        large_again, small_again = list_objects(store, PlaneName(PLANE), query)
    assert large == large_again
    assert large is not large_again
    assert small is small_again
