"""Responses as tables and as metadata only."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.json_path import compile_path, value_at
from datum_compute.api.meta.objects import TableColumn
from datum_compute.server.encoding import representation as columns
from datum_compute.server.encoding.representation import CELL_LENGTH_MAX, age, cell, duration
from testkit.api_server.running_server import WORKLOADS, InProcessServer, namespace, workload

TABLE = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PARTIAL = {"accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
PARTIAL_LIST = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
WEB = f"{WORKLOADS}/web"


@pytest.fixture
async def web(server: InProcessServer) -> JsonObject:
    await server.json("POST", WORKLOADS, workload())
    condition = {"type": "Available", "status": "False", "reason": "Starting"}
    other = {"type": "Other", "status": "True", "reason": "X"}
    return await server.merge(
        f"{WEB}/status", {"status": {"replicas": 3, "conditions": [other, condition]}}
    )


async def test_a_list_as_a_table_shows_the_columns_of_the_kind(
    server: InProcessServer, web: JsonObject
) -> None:
    server.clock.now_s += 90
    table = await server.json("GET", WORKLOADS, headers=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == {"resourceVersion": web["metadata"]["resourceVersion"]}
    headings = [column["name"] for column in table["columnDefinitions"]]
    (row,) = table["rows"]
    cells = dict(zip(headings, row["cells"], strict=True))
    assert cells["Name"] == "web"
    assert cells["Age"] == "90s"
    assert (cells["Available"], cells["Reason"]) == ("False", "Starting")
    assert (cells["Replicas"], cells["Ready"]) == (3, None)
    assert row["object"]["kind"] == "PartialObjectMetadata"
    assert row["object"]["metadata"] == web["metadata"]


async def test_one_object_is_returned_as_a_table(server: InProcessServer, web: JsonObject) -> None:
    table = await server.json("GET", WEB, headers=TABLE, includeObject="Object")
    assert table["rows"][0]["object"] == web
    table = await server.json("GET", WEB, headers=TABLE, includeObject="None")
    assert set(table["rows"][0]) == {"cells"}
    assert (await server.ask("GET", WEB, headers=TABLE, includeObject="All")).status == 422


async def test_wide_columns_have_a_priority(server: InProcessServer) -> None:
    path = WORKLOADS.replace("workloads", "instances")
    table = await server.json("GET", path, headers=TABLE)
    priorities = {c["name"]: c["priority"] for c in table["columnDefinitions"]}
    assert (priorities["Name"], priorities["Ready"], priorities["Message"]) == (0, 0, 1)


async def test_errors_are_status_objects_when_a_table_is_requested(server: InProcessServer) -> None:
    status = await server.status("GET", f"{WORKLOADS}/none", headers=TABLE)
    assert status["reason"] == "NotFound"


async def test_a_table_watch_sends_its_columns_with_the_first_object_and_the_first_change(
    server: InProcessServer, web: JsonObject
) -> None:
    await server.json("POST", WORKLOADS, workload("zoo"))
    watch = await server.watch(WORKLOADS, headers=TABLE)
    events = await watch.take(2)
    for name in ("web", "zoo"):
        await server.json("DELETE", f"{WORKLOADS}/{name}")
        events.append(await watch.next())
    assert [kind for kind, _ in events] == ["ADDED", "ADDED", "DELETED", "DELETED"]
    shown = [bool(table["columnDefinitions"]) for _, table in events]
    assert shown == [True, False, True, False]
    assert [table["rows"][0]["cells"][0] for _, table in events] == ["web", "zoo", "web", "zoo"]


async def test_metadata_only_responses_contain_nothing_else(
    server: InProcessServer, web: JsonObject
) -> None:
    expected = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": web["metadata"],
    }
    assert await server.json("GET", WEB, headers=PARTIAL) == expected
    listed = await server.json("GET", WORKLOADS, headers=PARTIAL_LIST)
    assert (listed["kind"], listed["items"]) == ("PartialObjectMetadataList", [expected])
    watch = await server.watch(WORKLOADS, headers=PARTIAL)
    assert await watch.next() == ("ADDED", expected)


async def test_responses_to_writes_can_be_tables_and_metadata(server: InProcessServer) -> None:
    path = "/api/v1/namespaces"
    created = await server.json("POST", path, namespace("x"), headers=PARTIAL)
    assert created["kind"] == "PartialObjectMetadata"
    assert (await server.json("DELETE", f"{path}/x", headers=TABLE))["kind"] == "Table"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"),
        (8 * 3600, "8h"),
        (48 * 3600 - 1, "47h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400, "8d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (731 * 86400, "2y1d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_short_ages_have_a_finer_resolution(seconds: int, shown: str) -> None:
    assert duration(seconds) == shown


def test_column_paths_are_evaluated() -> None:
    obj = {"a": [{"b": 1}, {"type": "X", "b": 2}], "c": {"d-e": None}}
    assert value_at(obj, ".a[0].b") == 1
    assert value_at(obj, '.a[?(@.type=="X")].b') == 2
    assert value_at(obj, '.a[?(@.type=="Y")].b') is None
    assert value_at(obj, ".a[7].b") is None
    assert value_at(obj, ".a[*].b") == 1
    assert value_at({"a.b/c": 3}, r".a\.b/c") == value_at({"a.b/c": 3}, "['a.b/c']") == 3
    assert value_at(obj, ".c.d-e.f") is None
    assert value_at(obj, ".a.b") is None
    with pytest.raises(ValueError, match="not supported"):
        compile_path(".a[0:2]")


SPEC_COLUMN = TableColumn("Spec", ".spec", "string")


class CountedItems(list[Any]):
    """Counts the items that are read."""

    def __init__(self, items: list[Any]) -> None:
        super().__init__(items)
        self.read = 0

    def __iter__(self) -> Any:
        for item in super().__iter__():
            self.read += 1
            yield item


@pytest.mark.parametrize(
    "value",
    [
        "x" * 100_000,
        ["x" * 100_000],
        {"x" * 100_000: 1},
        {f"k{number}": "\u0001" * 100 for number in range(10_000)},
        [[[number]] for number in range(10_000)],
        [""] * 10_000,
    ],
)
def test_a_cell_shows_the_beginning_of_a_large_value(value: Any) -> None:
    whole = value if isinstance(value, str) else encode(value).decode()
    text = cell({"spec": value}, SPEC_COLUMN, 0)
    assert len(text) == CELL_LENGTH_MAX
    assert text.endswith("...")
    assert whole.startswith(text.removesuffix("..."))


@pytest.mark.parametrize("item", [1, "", "a", [], {}, None])
def test_only_the_items_that_fit_into_a_cell_are_read(item: Any) -> None:
    items = CountedItems([item] * 100_000)
    cell({"spec": items}, SPEC_COLUMN, 0)
    assert items.read <= CELL_LENGTH_MAX // 2 + 2


@pytest.mark.parametrize("value", [1, True, 1.5, "text", None])
def test_a_cell_shows_a_small_value_as_it_is(value: Any) -> None:
    assert cell({"spec": value}, SPEC_COLUMN, 0) is value


def test_a_cell_shows_small_objects_and_lists_as_json() -> None:
    value = {"a": [1, None, True, "\u00e4"], "b": {}}
    assert cell({"spec": value}, SPEC_COLUMN, 0) == encode(value).decode()


def test_a_long_text_is_not_parsed_as_a_date(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    monkeypatch.setattr(columns, "parse_timestamp", parsed.append)
    assert age("2" * 1_000_000, 0) == "<invalid>"
    assert not parsed
