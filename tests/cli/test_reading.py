"""Read commands: lists in every format, and the chain of causes."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
import yaml

from datum_compute.api.core import Namespace
from datum_compute.api.events import Event
from datum_compute.api.kinds import BUCKET, EVENT, INSTANCE, LOCATION_BINDING, NAMESPACE, WORKLOAD
from datum_compute.api.labels import CITY_CODE
from datum_compute.api.meta.codec import JsonObject, from_json, to_json
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.networking.location import LocationBinding
from datum_compute.api.quota import MEMORY, WORKLOADS, AllowanceBucket, QuotaMetric
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner
from tests.cli.world import World, image_missing

pytestmark = pytest.mark.usefixtures("local_platform")


def deployed(
    cli: CliRunner, *cities: str, name: str = "web", image: str = "reg.test/x/web:1"
) -> None:
    code = cli.run("deploy", name, f"--image={image}", f"--city={','.join(cities)}", "-y")
    assert code == 0, cli.err


async def patch_status_of(
    client: Client, kind: KindInfo[Any], ref: Ref, status: JsonObject
) -> None:
    found = await client.get(kind, ref)
    await client.patch_status(kind, ref, status, version=found.metadata.resource_version)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


# --- workloads


def test_workloads_are_listed_with_their_cities_and_health(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD")
    deployed(cli, "DFW", name="api", image="api:7")
    assert cli.run("workloads") == 0
    assert cli.out.splitlines() == [
        "NAME   CITIES    HEALTH      READY   UP-TO-DATE   IMAGE   AGE",
        "api    DFW       Available   1/1     1            api:7   5m",
        "web    DFW,ORD   Available   2/2     2            web:1   5m",
    ]
    assert cli.err == "2 workloads: 2 Available\n"


def test_an_empty_project_prints_how_to_deploy(cli: CliRunner) -> None:
    assert cli.run("workloads") == 0
    assert cli.out == ""
    assert "Create one: datumctl compute deploy web" in cli.err


def test_filters_apply_to_every_format(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD")
    deployed(cli, "DFW", name="api")
    for form in ("name", "json", "yaml", "csv", "table", "wide", "jsonpath={.items[0].name}"):
        assert cli.run("workloads", "--city=ord", "-o", form) == 0
        assert "web" in cli.out
        assert "api" not in cli.out
    assert cli.run("workloads", "--health=degraded") == 0
    assert (cli.out, cli.err) == ("", "No workloads match in project/default.\n")


def test_a_workload_as_json(cli: CliRunner) -> None:
    deployed(cli, "DFW")
    assert cli.run("workloads", "-o", "json") == 0
    (item,) = json.loads(cli.out)["items"]
    assert item["name"] == "web"
    assert item["health"] == "Available"
    assert item["images"] == ["reg.test/x/web:1"]
    assert (item["ready"], item["desired"], item["cities"]) == (1, 1, ["DFW"])
    assert cli.run("workloads", "-o", "yaml") == 0
    assert yaml.safe_load(cli.out)["items"] == [item]


def test_an_unknown_format_is_refused(cli: CliRunner) -> None:
    assert cli.run("workloads", "-o", "xml") == 2
    assert "none of table, wide, json" in cli.err
    assert cli.run("workloads", "-o", "jsonpath=..x") == 2
    assert "not supported" in cli.err


def test_headings_can_be_omitted(cli: CliRunner) -> None:
    deployed(cli, "DFW")
    assert cli.run("workloads", "--no-headers") == 0
    assert rows(cli.out)[0][0] == "web"
    assert cli.err == ""


# --- instances


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


# --- the project


def test_only_objects_of_the_namespace_are_listed(cli: CliRunner, world: World) -> None:
    world.do(lambda c: c.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="team"))))
    code = cli.run("deploy", "web", "--image=x", "--city=DFW", "-y", "--no-wait", "-n", "team")
    assert code == 0, cli.err
    assert "project/default, namespace team" in cli.err
    found = world.do(lambda client: client.list(WORKLOAD, "team"))
    assert [workload.metadata.name for workload in found.items] == ["web"]
    assert cli.run("workloads", "-o", "name") == 0
    assert cli.out == ""
    assert cli.run("--namespace=team", "workloads", "-o", "name") == 0
    assert cli.out == "workload/web\n"


def binding(city: str) -> LocationBinding:
    spec = {
        "locationRef": {"name": city.lower()},
        "locationClassName": "datum-managed",
        "topology": {"topology.datum.net/city-code": city},
    }
    return from_json({"metadata": {"name": city.lower()}, "spec": spec}, LocationBinding)


def test_cities_shows_availability(cli: CliRunner, world: World) -> None:
    async def two(client: Client) -> None:
        for city, status, reason in (("ZZZ", "False", "CellDrained"), ("AAA", "True", "Open")):
            await client.create(LOCATION_BINDING, binding(city))
            value = {"type": "Available", "status": status, "reason": reason, "message": "tested"}
            await patch_status_of(
                client, LOCATION_BINDING, Ref("", city.lower()), {"conditions": [value]}
            )

    world.do(two)
    assert cli.run("cities") == 0
    heading, first, *_, last = cli.out.splitlines()
    assert heading.split() == ["CITY", "STATUS", "MESSAGE"]
    assert first.split() == ["AAA", "Available", "-"]
    assert last.split(maxsplit=1) == ["ZZZ", "Unavailable (cell drained)   tested"]
    assert cli.run("cities", "-o", "name") == 0
    assert "city/AAA\n" in cli.out


def test_instance_types_are_sorted_by_size(cli: CliRunner) -> None:
    assert cli.run("instance-types") == 0
    assert cli.out.splitlines()[:3] == [
        "NAME            CPU    MEMORY   PHASE    REPLACEMENT",
        "d1-standard-1   500m   1Gi      Active   -",
        "d1-standard-2   1      2Gi      Active   -",
    ]


async def bucket(
    client: Client, metric: QuotaMetric, limit: int, used: int, *, added_up: bool = True
) -> None:
    consumer = {"kind": "Project", "name": "default"}
    made = from_json(
        {
            "metadata": {"name": f"bucket-{metric.name}", "namespace": "milo-system"},
            "spec": {"consumerRef": consumer, "resourceType": metric.resource_type},
        },
        AllowanceBucket,
    )
    await client.create(BUCKET, made)
    if not added_up:
        return
    status = {"limit": limit, "allocated": used, "available": limit - used, "claimCount": 1}
    await patch_status_of(client, BUCKET, Ref("milo-system", f"bucket-{metric.name}"), status)


def test_quota_shows_use_and_limit_in_common_units(cli: CliRunner, world: World) -> None:
    async def both(client: Client) -> None:
        await bucket(client, MEMORY, 4096, 3072)
        await bucket(client, WORKLOADS, 2, 2)

    world.do(both)
    assert cli.run("quota") == 0
    assert cli.out.splitlines() == [
        "RESOURCE    UNIT   LIMIT   USED   AVAILABLE   USAGE",
        "workloads   -      2       2      0           [####################] 100%",
        "memory      GiB    4       3      1           [###############.....] 75%",
    ]
    assert cli.run("quota", "--constrained", "-o", "name") == 0
    assert cli.out == "quota/workloads\n"


def test_quota_names_waiting_instances(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")

    async def deny(client: Client) -> None:
        listed = await client.list(INSTANCE, "default")
        ref = Ref("default", listed.items[0].metadata.name)
        value = {"type": "QuotaGranted", "status": "False", "reason": "QuotaExceeded"}
        await patch_status_of(
            client, INSTANCE, ref, {"conditions": [{**value, "message": "11 of 10"}]}
        )

    world.do(deny)
    assert cli.run("quota") == 0
    assert "in DFW waits for quota: 11 of 10" in cli.err


def test_every_namespace_is_listed_and_counted(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")

    async def elsewhere(client: Client) -> None:
        metadata = ObjectMeta(name="other")
        await client.create(NAMESPACE, Namespace(metadata=metadata))
        kinds: tuple[KindInfo[Any], ...] = (WORKLOAD, INSTANCE)
        for kind in kinds:
            (found,) = (await client.list(kind, "default")).items
            body = {**to_json(found), "metadata": {"namespace": "other", "name": "api-dfw-0"}}
            body["metadata"]["labels"] = {CITY_CODE: "DFW"}
            await client.create(kind, from_json(body, kind.model))

    world.do(elsewhere)
    assert cli.run("workloads", "-A") == 0
    assert [row[:2] for row in rows(cli.out)] == [
        ["NAMESPACE", "NAME"],
        ["other", "api-dfw-0"],
        ["default", "web"],
    ]
    assert cli.run("workloads", "-o", "json") == 0
    assert [w["namespace"] for w in json.loads(cli.out)["items"]] == ["default"]
    assert cli.run("instances", "--all-namespaces", "-o", "json") == 0
    spaces = sorted(i["namespace"] for i in json.loads(cli.out)["items"])
    assert spaces == ["default", "other"]
    assert cli.run("instances", "-A", "--workload=web") == 2
    assert cli.run("quota") == 0
    assert rows(cli.out)[-1][:2] == ["DFW", "2"]


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


# --- explain


def test_explain_names_cause_owner_and_next_command(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--timeout=1s")
    assert cli.run("explain", "web") == 0
    first, *_ = cli.out.splitlines()
    assert first.startswith("Workload web: Available is False (ImageUnavailable")
    assert "Action:      required from you" in cli.out
    assert "Next:        datumctl compute deploy web --image=" in cli.out
    assert cli.run("explain", "web", "-o", "json") == 0
    cause = json.loads(cli.out)["cause"]
    assert (cause["reason"], cause["move"]) == ("ImageUnavailable", "you")


def test_explain_of_a_healthy_workload_needs_no_action(cli: CliRunner) -> None:
    deployed(cli, "DFW")
    assert cli.run("explain", "web") == 0
    assert "Healthy. No action needed." in cli.out


def test_explain_accepts_an_instance(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")
    listed = world.do(lambda client: client.list(INSTANCE, "default"))
    name = listed.items[0].metadata.name
    assert cli.run("explain", name) == 0
    assert cli.out.startswith(f"Instance {name}: Ready is True")
    assert cli.run("explain", "wbe") == 3
    assert "Did you mean 'web'?" in cli.err
