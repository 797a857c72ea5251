"""GET of lists: versions, pages, selectors."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.verbs import read
from testkit.api_server.running_server import (
    COMPUTE,
    WORKLOADS,
    InProcessServer,
    namespace,
    running_server,
    workload,
)

EVERYWHERE = f"{COMPUTE}/workloads"


async def create_workloads(server: InProcessServer, count: int) -> None:
    for number in range(count):
        await server.json("POST", WORKLOADS, workload(f"w{number}", labels={"n": str(number)}))


def names(listed: JsonObject) -> list[str]:
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_an_empty_list_has_items_and_the_version_of_the_plane(
    server: InProcessServer,
) -> None:
    listed = await server.json("GET", WORKLOADS)
    assert listed == {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "WorkloadList",
        "metadata": {"resourceVersion": str(server.store.version("platform"))},
        "items": [],
    }


async def test_items_are_sorted_and_contain_their_kind(server: InProcessServer) -> None:
    for name in ("b", "a", "c"):
        await server.json("POST", WORKLOADS, workload(name))
    listed = await server.json("GET", WORKLOADS)
    assert names(listed) == ["a", "b", "c"]
    assert {item["kind"] for item in listed["items"]} == {"Workload"}


async def test_a_namespace_lists_its_own_and_the_cluster_lists_all(server: InProcessServer) -> None:
    await server.json("POST", "/api/v1/namespaces", namespace("other"))
    other = WORKLOADS.replace("default", "other")
    await server.json("POST", other, workload("far"))
    await server.json("POST", WORKLOADS, workload("near"))
    assert names(await server.json("GET", WORKLOADS)) == ["near"]
    assert names(await server.json("GET", other)) == ["far"]
    assert names(await server.json("GET", EVERYWHERE)) == ["near", "far"]
    assert names(await server.json("GET", WORKLOADS.replace("default", "none"))) == []


async def test_pages_show_one_version_of_the_list(server: InProcessServer) -> None:
    await create_workloads(server, 5)
    first = await server.json("GET", WORKLOADS, limit="2")
    assert first["metadata"]["remainingItemCount"] == 3
    await server.json("DELETE", f"{WORKLOADS}/w2")
    await server.merge(f"{WORKLOADS}/w3", {"metadata": {"labels": {"n": "changed"}}})
    await server.json("POST", WORKLOADS, workload("w22"))
    second = await server.json(
        "GET", WORKLOADS, limit="2", **{"continue": first["metadata"]["continue"]}
    )
    third = await server.json(
        "GET", WORKLOADS, limit="2", **{"continue": second["metadata"]["continue"]}
    )
    assert names(first) + names(second) + names(third) == ["w0", "w1", "w2", "w3", "w4"]
    assert second["items"][1]["metadata"]["labels"] == {"n": "3"}
    versions = {page["metadata"]["resourceVersion"] for page in (first, second, third)}
    assert len(versions) == 1
    assert "continue" not in third["metadata"]


async def test_a_page_of_rows_ends_at_a_size_and_continues(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "ENCODED_BYTES_MAX", 1)
    await create_workloads(server, 3)
    table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
    found: list[str] = []
    query = {"limit": "500"}
    for _ in range(3):
        page = await server.json("GET", WORKLOADS, headers=table, **query)
        found += [row["cells"][0] for row in page["rows"]]
        query["continue"] = page["metadata"].get("continue", "")
    assert found == ["w0", "w1", "w2"]
    assert not query["continue"]
    status = await server.status("GET", WORKLOADS, headers=table)
    assert (status["code"], "parameter limit" in status["message"]) == (400, True)
    assert len((await server.json("GET", WORKLOADS))["items"]) == 3, "stored bytes are no copies"


async def test_pages_of_a_selection_have_no_remaining_count(server: InProcessServer) -> None:
    await create_workloads(server, 4)
    page = await server.json("GET", WORKLOADS, limit="1", labelSelector="n notin (0,2)")
    assert names(page) == ["w1"]
    assert "remainingItemCount" not in page["metadata"]
    more = await server.json(
        "GET",
        WORKLOADS,
        limit="5",
        labelSelector="n notin (0,2)",
        **{"continue": page["metadata"]["continue"]},
    )
    assert names(more) == ["w3"]


async def test_a_page_after_compaction_is_410() -> None:
    async with running_server(watch_window=2) as server:
        await create_workloads(server, 3)
        first = await server.json("GET", WORKLOADS, limit="1")
        for number in range(8):
            await server.merge(f"{WORKLOADS}/w0", {"metadata": {"labels": {"n": f"x{number}"}}})
        status = await server.status(
            "GET", WORKLOADS, limit="1", **{"continue": first["metadata"]["continue"]}
        )
    assert (status["code"], status["reason"]) == (410, "Expired")


@pytest.mark.parametrize("token", ["x", "!!!!", "e30", "bnVsbA", "\u00e9", "eyJ2IjotMX0"])
async def test_an_invalid_continue_token_is_400(server: InProcessServer, token: str) -> None:
    status = await server.status("GET", WORKLOADS, limit="1", **{"continue": token})
    assert status["code"] == 400


async def test_a_continue_token_cannot_be_combined_with_a_version(server: InProcessServer) -> None:
    await create_workloads(server, 2)
    token = (await server.json("GET", WORKLOADS, limit="1"))["metadata"]["continue"]
    status = await server.status("GET", WORKLOADS, resourceVersion="1", **{"continue": token})
    assert status["code"] == 400


async def test_an_exact_version_returns_the_past_state(server: InProcessServer) -> None:
    await create_workloads(server, 2)
    then = await server.json("GET", WORKLOADS)
    await server.json("DELETE", f"{WORKLOADS}/w0")
    await server.json("POST", WORKLOADS, workload("w0", image="again:1"))
    await server.merge(f"{WORKLOADS}/w1", {"metadata": {"labels": None}})
    version = then["metadata"]["resourceVersion"]
    exact = await server.json(
        "GET", WORKLOADS, resourceVersion=version, resourceVersionMatch="Exact"
    )
    assert exact == then


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersion": "x"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"resourceVersion": "1.5"}, 400),
        ({"resourceVersion": "1_0"}, 400),
        ({"resourceVersion": "9" * 30}, 400),
        ({"limit": "many"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Nearly", "resourceVersion": "1"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "99999"}, 504),
        ({"resourceVersion": "99999", "resourceVersionMatch": "Exact"}, 504),
        ({"labelSelector": "a b"}, 400),
        ({"fieldSelector": "spec.x=1"}, 400),
        ({"fieldSelector": "metadata.name"}, 400),
        ({"includeObject": "None"}, 200),
    ],
)
async def test_invalid_options_are_rejected(
    server: InProcessServer, query: dict[str, Any], code: int
) -> None:
    assert (await server.ask("GET", WORKLOADS, **query)).status == code


async def test_the_error_of_a_future_version_contains_retry_after(server: InProcessServer) -> None:
    response = await server.ask("GET", WORKLOADS, resourceVersion="99999")
    assert response.headers["retry-after"] == "1"
    status = await server.status("GET", f"{WORKLOADS}/x", resourceVersion="99999")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


@pytest.mark.parametrize("version", ["", "0", "1"])
async def test_an_older_version_returns_the_newest_state(
    server: InProcessServer, version: str
) -> None:
    await create_workloads(server, 2)
    listed = await server.json("GET", WORKLOADS, resourceVersion=version)
    assert len(listed["items"]) == 2
    assert listed["metadata"]["resourceVersion"] == str(server.store.version("platform"))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", "abcd"),
        ("tier=web", "ab"),
        ("tier==web", "ab"),
        ("tier = web", "ab"),
        ("tier!=web", "cd"),
        ("tier in (web,db)", "abc"),
        ("tier in ( web , db )", "abc"),
        ("tier notin (web)", "cd"),
        ("tier", "abc"),
        ("!tier", "d"),
        ("! tier", "d"),
        ("tier,env=prod", "a"),
        ("env=prod,tier=web", "a"),
        ("example.com/x=", "b"),
        ("tier in (web,db),env!=prod", "bc"),
        ("in=notin", "d"),
        ("in in (notin)", "d"),
        ("in", "d"),
    ],
)
async def test_label_selectors_select_objects(
    server: InProcessServer, selector: str, expected: str
) -> None:
    for name, labels in {
        "a": {"tier": "web", "env": "prod"},
        "b": {"tier": "web", "example.com/x": ""},
        "c": {"tier": "db"},
        "d": {"in": "notin"},
    }.items():
        await server.json("POST", WORKLOADS, workload(name, labels=labels))
    listed = await server.json("GET", WORKLOADS, labelSelector=selector)
    assert names(listed) == list(expected)


@pytest.mark.parametrize(
    "selector",
    [
        *("=", "a=b,", ",a", "a in", "a in b", "a in (b", "a=b=c", "a b", "!a=b", "a>1", "()"),
        *("!", "!!a", "a=b c", "\u00e9=1", "a/b/c=1", "a=" + "x" * 64, "a notin", "a in (b c)"),
    ],
)
async def test_invalid_label_selectors_are_400(server: InProcessServer, selector: str) -> None:
    status = await server.status("GET", WORKLOADS, labelSelector=selector)
    assert (status["code"], status["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name==a,", ["a"]),
        ("metadata.name!=a", ["b"]),
        ("metadata.namespace=default", ["a", "b"]),
        ("metadata.namespace=other", []),
        ("metadata.name=a,metadata.namespace=default", ["a"]),
    ],
)
async def test_field_selectors_select_objects(
    server: InProcessServer, selector: str, expected: list[str]
) -> None:
    for name in ("a", "b"):
        await server.json("POST", WORKLOADS, workload(name))
    assert names(await server.json("GET", EVERYWHERE, fieldSelector=selector)) == expected


async def test_the_error_of_an_unknown_field_label_names_it(server: InProcessServer) -> None:
    status = await server.status("GET", WORKLOADS, fieldSelector="spec.nodeName=x")
    assert status["message"] == "field label not supported: spec.nodeName"
    path = "/apis/cluster.karmada.io/v1alpha1/clusters"
    assert (await server.ask("GET", path, fieldSelector="metadata.namespace=x")).status == 400


async def test_a_watch_parameter_on_one_object_is_ignored(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload())
    assert (await server.json("GET", f"{WORKLOADS}/web", watch="1"))["kind"] == "Workload"
