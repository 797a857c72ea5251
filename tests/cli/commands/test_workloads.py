"""``workloads``: the list, its filters and its formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from datum_compute.api.core import Namespace
from datum_compute.api.kinds import INSTANCE, NAMESPACE, WORKLOAD
from datum_compute.api.labels import CITY_CODE
from datum_compute.api.meta.codec import from_json, to_json
from datum_compute.api.meta.objects import KindInfo, ObjectMeta
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner, deployed, rows
from tests.cli.world import World

pytestmark = pytest.mark.usefixtures("local_platform")


def test_workloads_are_listed_with_their_cities_and_health(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD")
    deployed(cli, "DFW", name="api", image="api:7")
    assert cli.run("workloads") == 0
    assert cli.out.splitlines() == [
        "NAME   CITIES    HEALTH      READY   UP-TO-DATE   IMAGE   AGE",
        "api    DFW       Available   1/1     1/1          api:7   5m",
        "web    DFW,ORD   Available   2/2     2/2          web:1   5m",
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
            await client.create(kind, from_json(body, kind.model), with_status=True)

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


def test_more_than_three_cities_are_counted_in_the_table(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD", "IAD", "AMS")
    assert cli.run("workloads") == 0
    assert rows(cli.out)[1][1:3] == ["DFW,ORD,IAD", "(+1)"]
    assert cli.run("workloads", "-o", "json") == 0
    assert json.loads(cli.out)["items"][0]["cities"] == ["DFW", "ORD", "IAD", "AMS"]


def test_a_workload_is_described_with_scale_containers_and_cities(cli: CliRunner) -> None:
    deployed(cli, "DFW", "ORD")
    assert cli.run("deploy", "web", "--env=KEY=hunter2", "-y") == 0
    assert cli.run("workloads", "describe", "web") == 0
    assert "default: at least 1 in each of DFW, ORD" in cli.out
    assert "reg.test/x/web:1" in cli.out
    assert "hunter2" not in cli.out
    assert "Why:" not in cli.err, "it is available"
    assert cli.run("workloads", "describe", "web", "-o", "json", "--show-values") == 0
    described = json.loads(cli.out)
    assert [place["city"] for place in described["placements"]] == ["DFW", "ORD"]
    assert "hunter2" in cli.out
    assert described["rolloutDone"] is True
