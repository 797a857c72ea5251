"""``instances``: the list, its filters, owners, and the last wake of an instance."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance, InstanceSpec, InstanceStatus
from datum_compute.api.compute.scale_to_zero import ScaleToZero, Wake
from datum_compute.api.conditions import Condition
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.labels import CITY_CODE, PLACEMENT_NAME, WORKLOAD_NAME
from datum_compute.api.meta.codec import JsonObject, from_json, to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.cli.commands.instances import wake_document, wake_fields
from datum_compute.cli.render.health import instance_health, short_text
from datum_compute.cli.workload.observe import by_name, instance_owner
from datum_compute.client.client import Client
from testkit.builders import a_template
from tests.cli.objects import deployment, instance
from tests.cli.runner import CliRunner, deployed, rows
from tests.cli.world import NAMESPACE, World, image_missing, patch_status_of

pytestmark = pytest.mark.usefixtures("local_platform")

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


def test_instances_are_listed_with_place_and_status(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD")
    assert cli.run("instances") == 0
    heading, *lines = rows(cli.out)
    assert heading == ["NAME", "WORKLOAD", "CITY", "ADDRESS", "AGE", "STATUS"]
    assert [(line[2], line[-1]) for line in lines] == [("DFW", "Available"), ("ORD", "Available")]
    assert cli.err == "2 instances: 2 Available\n"


def test_instances_of_one_workload_and_one_city(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD")
    deployed(cli, "DFW", name="api")
    assert cli.run("instances", "--workload=web", "--city=dfw", "-o", "json") == 0
    (item,) = json.loads(cli.out)["items"]
    assert (item["city"], item["status"]) == ("DFW", "Available")
    assert cli.run("instances", "--workload=wbe") == 3
    assert "Did you mean 'web'?" in cli.err


def test_the_status_of_an_instance_is_in_plain_words(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--timeout=1s")
    assert cli.run("instances", "-o", "wide") == 0
    assert "Failed (image unavailable)" in cli.out
    assert "no such tag: web:9" in cli.out
    assert cli.err == "1 instance: 1 Failed\n"


def test_csv_cells_contain_no_formula(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")

    async def rename(client: Client) -> None:
        listed = await client.list(INSTANCE, "default")
        ref = Ref("default", listed.items[0].metadata.name)
        value = {"type": "Ready", "status": "False", "reason": "X", "message": "=cmd()"}
        await patch_status_of(client, INSTANCE, ref, {"conditions": [value]})

    world.do(rename)
    assert cli.run("instances", "-o", "csv") == 0
    headings, row = list(csv.reader(io.StringIO(cli.out)))
    assert row[headings.index("MESSAGE")] == "'=cmd()"


AT = "2026-01-01T00:00:00Z"


WAKE = Wake(
    at=AT,
    mode="stop",
    queue_milliseconds=4,
    engine_milliseconds=170,
    ready_milliseconds=9,
    first_byte_milliseconds=1,
)


def instance_with(reason: str, wake: Wake | None = None) -> Instance:
    spec = InstanceSpec(runtime=a_template().spec.runtime, scale_to_zero=ScaleToZero(mode="stop"))
    conditions = [
        Condition(type="Available", status="True", reason=reason, message="why"),
        Condition(type="Ready", status="True", reason="Available"),
    ]
    status = InstanceStatus(conditions=conditions, last_wake=wake)
    return Instance(metadata=ObjectMeta(name="web-0"), spec=spec, status=status)


def test_only_a_sleeping_instance_has_sleep_fields() -> None:
    asleep, awake = (
        instance_health(instance_with("Asleep")),
        instance_health(instance_with("Available")),
    )
    assert (asleep.word, short_text(asleep)) == ("Available", "Available (asleep)")
    assert (awake.reason, short_text(awake)) == ("", "Available")


def test_the_last_wake_is_shown_with_its_phases() -> None:
    fields = dict(wake_fields(instance_with("Available", WAKE), parse_timestamp(AT) + 5))
    assert fields == {
        "Sleeps": "after 30s without a connection (stop)",
        "Last wake": "5s ago, in 184 ms from stop (queue 4, engine 170, ready 9, firstByte 1)",
    }


def test_a_failed_wake_shows_its_cause() -> None:
    failed = msgspec.structs.replace(WAKE, failure="it crashed")
    fields = dict(wake_fields(instance_with("Available", failed), parse_timestamp(AT) + 5))
    assert fields["Last wake"] == "5s ago, failed: it crashed"


def test_json_contains_the_last_wake_or_null() -> None:
    document = wake_document(instance_with("Available", WAKE))
    assert document is not None
    assert document.milliseconds["total"] == 184
    assert wake_document(instance_with("Available")) is None


def test_instances_are_matched_by_labels_then_deployment_name_then_ordinal() -> None:
    deployments = by_name([deployment("DFW", name="web-x")])
    bare = instance("web-x-0", "")
    found = instance_owner(from_json(_without_labels(bare), type(bare)), deployments)
    assert (found.workload, found.placement, found.city) == ("web", "default", "DFW")
    labels = {WORKLOAD_NAME: "api", PLACEMENT_NAME: "east", CITY_CODE: "ord"}
    labelled = {**_without_labels(bare), "metadata": {"name": "web-x-0", "labels": labels}}
    found = instance_owner(from_json(labelled, type(bare)), deployments)
    assert (found.workload, found.placement, found.city) == ("api", "east", "ORD")
    orphan = {**_without_labels(bare), "metadata": {"name": "missing"}}
    found = instance_owner(from_json(orphan, type(bare)), deployments)
    assert (found.workload, found.city) == ("unknown", "unknown")


def _without_labels(found: Any) -> JsonObject:
    return {**to_json(found), "metadata": {"name": found.metadata.name}}


def test_instances_without_labels_are_found_by_their_deployment(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)

    async def unlabel(client: Client) -> None:
        for found in (await client.list(INSTANCE, NAMESPACE)).items:
            ref = Ref(NAMESPACE, found.metadata.name)
            await client.patch(INSTANCE, ref, {"metadata": {"labels": None}})
        assert (await client.list(DEPLOYMENT, NAMESPACE)).items

    world.do(unlabel)
    assert cli.run("instances", "--workload=web", "--city=DFW", "-o", "json") == 0
    (item,) = json.loads(cli.out)["items"]
    assert (item["workload"], item["city"], item["placement"]) == ("web", "DFW", "default")
