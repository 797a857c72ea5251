"""``events``: order and filters."""

from __future__ import annotations

import json

import pytest

from datum_compute.api.events import Event
from datum_compute.api.kinds import EVENT, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.commands.events import count_of, last_seen
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner, deployed, rows
from tests.cli.world import World

pytestmark = pytest.mark.usefixtures("local_platform")


def event(name: str, uid: str, at: str, type_: str = "Normal") -> Event:
    return from_json(
        {
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Workload", "name": "web", "uid": uid},
            "reason": "Because",
            "message": f"it is {name}",
            "type": type_,
            "lastTimestamp": at,
        },
        Event,
    )


def test_events_of_a_workload_are_sorted_and_filtered(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")

    async def three(client: Client) -> None:
        uid = (await client.get(WORKLOAD, Ref("default", "web"))).metadata.uid
        await client.create(EVENT, event("late", uid, "2027-01-15T07:59:50Z", "Warning"))
        await client.create(EVENT, event("early", uid, "2027-01-15T07:58:00Z"))
        await client.create(EVENT, event("foreign", "other", "2027-01-15T07:59:00Z"))

    world.do(three)
    assert cli.run("events", "web") == 0
    assert [(line[0], line[-1]) for line in rows(cli.out)[1:]] == [
        ("2m", "early"),
        ("10s", "late"),
    ]
    assert cli.run("events", "web", "--warnings", "-o", "json") == 0
    assert [item["message"] for item in json.loads(cli.out)["items"]] == ["it is late"]
    assert cli.run("events", "-o", "name") == 0
    assert "event/foreign" in cli.out


def test_events_of_the_same_second_are_in_the_order_of_their_writes(
    cli: CliRunner, world: World
) -> None:
    async def same_second(client: Client) -> None:
        for name in ("zulu", "alpha", "mike"):
            await client.create(EVENT, event(name, "uid", "2027-01-15T07:59:50Z"))

    world.do(same_second)
    assert cli.run("events", "-o", "json") == 0
    messages = [item["message"] for item in json.loads(cli.out)["items"]]
    assert messages == ["it is zulu", "it is alpha", "it is mike"]


BASE = {"metadata": {"name": "a", "creationTimestamp": "2027-01-01T00:00:00Z"}}
SERIES = {"count": 7, "lastObservedTime": "2027-01-04T00:00:00.000000Z"}


@pytest.mark.parametrize(
    ("fields", "seen", "count"),
    [
        ({}, "2027-01-01T00:00:00Z", 1),
        ({"eventTime": "2027-01-02T00:00:00.000000Z"}, "2027-01-02T00:00:00.000000Z", 1),
        ({"lastTimestamp": "2027-01-03T00:00:00Z", "count": 3}, "2027-01-03T00:00:00Z", 3),
        (
            {"lastTimestamp": "2027-01-03T00:00:00Z", "count": 3, "series": SERIES},
            "2027-01-04T00:00:00.000000Z",
            7,
        ),
    ],
)
def test_the_latest_occurrence_and_the_largest_count_of_an_event_are_shown(
    fields: JsonObject, seen: str, count: int
) -> None:
    found = from_json({**BASE, **fields}, Event)
    assert last_seen(found).startswith(seen.partition(".")[0])
    assert count_of(found) == count


def test_a_project_without_events_is_reported(cli: CliRunner) -> None:
    deployed(cli, "DFW")
    assert cli.run("events", "web") == 0
    assert cli.out == ""
    assert "No recent events of web." in cli.err
    assert cli.run("events", "wbe") == 3
    assert "Did you mean 'web'?" in cli.err
