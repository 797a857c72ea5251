"""status: what a reader sees, and what a machine reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.cli.words import Health, instance_health, short_text, workload_health
from datum_compute.client.client import Client
from tests.cli.objects import condition, instance, workload
from tests.cli.surroundings import Desk
from tests.cli.world import (
    NAMESPACE,
    World,
    image_missing,
    nobody,
    set_status,
    write_kubeconfig,
)


@pytest.fixture
def desk(tmp_path: Path, world: World) -> Desk:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    desk = Desk(home=tmp_path, open_transport=world.open)
    assert desk.run("deploy", "web", "--image=reg.test/web:1", "--city=DFW,ORD", "-y") == 0
    return desk


def instance_names(world: World) -> list[str]:
    listed = world.do(lambda client: client.list(INSTANCE, NAMESPACE))
    return sorted(item.metadata.name for item in listed.items)


def columns(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_a_healthy_workload(desk: Desk, world: World) -> None:
    assert desk.run("status", "web") == 0
    head, cities, instances = desk.out.split("\n\n")
    assert head.splitlines() == [
        "Workload:  web (project/default)",
        "Image:     reg.test/web:1",
        "Created:   5m ago",
        "Health:    Available",
        "Rollout:   Done",
    ]
    assert cities.splitlines() == [
        "CITY   PLACEMENT   READY   UP-TO-DATE   DESIRED   ROLLOUT   REASON",
        "DFW    default     1       1            1         Done      -",
        "ORD    default     1       1            1         Done      -",
    ]
    assert columns(instances)[0] == ["INSTANCE", "CITY", "STATUS", "ADDRESS", "AGE", "REASON"]
    assert [row[1:] for row in columns(instances)[1:]] == [
        ["DFW", "Available", "10.0.0.0", "5m", "-"],
        ["ORD", "Available", "10.0.0.0", "5m", "-"],
    ]
    assert sorted(row[0] for row in columns(instances)[1:]) == instance_names(world)


def test_a_broken_workload_shows_the_reason_word_for_word(desk: Desk, world: World) -> None:
    world.player = image_missing
    desk.run("deploy", "web", "--image=web:9", "-y", "--timeout=1s")
    assert desk.run("status", "web") == 0
    assert "Health:    Unavailable: image unavailable: no such tag: web:9\n" in desk.out
    assert "Rollout:   In progress: image unavailable: no such tag: web:9 (in DFW)" in desk.out
    assert desk.out.count("image unavailable: no such tag: web:9\n") == 5


def test_json_and_yaml_say_the_same(desk: Desk, world: World) -> None:
    assert desk.run("status", "web", "-o", "json") == 0
    report = json.loads(desk.out)
    assert desk.run("status", "web", "-o", "yaml") == 0
    assert yaml.safe_load(desk.out) == report
    assert (report["name"], report["place"]) == ("web", "project/default")
    assert (report["health"], report["rolloutDone"]) == ("Available", True)
    assert report["containers"] == [{"name": "app", "image": "reg.test/web:1"}]
    assert [city["city"] for city in report["cities"]] == ["DFW", "ORD"]
    assert [i["name"] for i in report["instances"]] != []
    assert report["createdAt"].endswith("Z")


def test_a_city_without_a_deployment_is_shown_as_waiting(desk: Desk, world: World) -> None:
    world.player = nobody
    desk.run("deploy", "web", "--city=DFW,ORD,AMS", "-y", "--no-wait")
    assert desk.run("status", "web") == 0
    assert "AMS    default     0       0            1         Waiting   -" in desk.out
    assert "Rollout:   In progress: the platform has not taken up generation 2 yet\n" in desk.out


def test_text_from_outside_cannot_drive_the_terminal(desk: Desk, world: World) -> None:
    nasty = condition("Ready", "False", "Crashed", "\x1b[2J\x1b]0;owned\x07line\nbreak\u202e")

    async def write(client: Client) -> None:
        (name, *_) = [i.metadata.name for i in (await client.list(INSTANCE, NAMESPACE)).items]
        await set_status(client, INSTANCE, name, {"conditions": [nasty]})

    world.player = nobody
    world.do(write)
    desk.is_terminal, desk.environ, desk.columns = True, {"NO_COLOR": "1"}, 200
    assert desk.run("status", "web") == 0
    assert "crashed: [2J]0;ownedline break\n" in desk.out
    assert desk.out.replace("\n", "").isprintable()


def test_health_has_a_color_on_a_terminal(desk: Desk) -> None:
    desk.is_terminal = True
    desk.run("status", "web")
    assert "\x1b[32mHealth:    Available\x1b[0m\n" in desk.out


def test_an_unknown_name_ends_in_3_with_a_guess(desk: Desk) -> None:
    assert desk.run("status", "wep") == 3
    assert desk.err.splitlines() == [
        "Error: There is no workload 'wep' in project/default.",
        "Did you mean 'web'?",
    ]


def test_an_unknown_name_without_a_likeness_lists_what_there_is(desk: Desk) -> None:
    assert desk.run("status", "database") == 3
    assert desk.err.endswith("There are: web\n")


def test_an_empty_project_says_how_to_begin(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    desk = Desk(home=tmp_path, open_transport=World().open)
    assert desk.run("status", "web") == 3
    assert "datumctl compute deploy web --image=IMAGE --city=DFW" in desk.err


def test_another_workload_does_not_show(desk: Desk, world: World) -> None:
    desk.run("deploy", "api", "--image=api:1", "--city=DFW", "-y")
    desk.run("status", "web", "-o", "json")
    names = [i["name"] for i in json.loads(desk.out)["instances"]]
    assert names
    assert all(name.startswith("web-") for name in names)
    deployments = world.do(lambda client: client.list(DEPLOYMENT, NAMESPACE)).items
    assert len(deployments) == 3


def available(status: str, reason: str = "R", message: str = "m") -> list[dict[str, Any]]:
    return [condition("Available", status, reason, message)]


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ({}, Health("Unknown", "", "The platform has not reported yet")),
        ({"conditions": available("Unknown")}, Health("Unknown", "R", "m")),
        ({"conditions": available("False")}, Health("Unavailable", "R", "m")),
        (
            {"conditions": available("True"), "desiredReplicas": 2, "readyReplicas": 2},
            Health("Available"),
        ),
        (
            {"conditions": available("True"), "desiredReplicas": 3, "readyReplicas": 2},
            Health("Degraded", "", "1 instance below desired count"),
        ),
    ],
)
def test_health_in_a_word(status: dict[str, Any], health: Health) -> None:
    assert workload_health(workload("DFW", **status)) == health


def test_an_instance_that_is_not_observed_is_unknown() -> None:
    ready = condition("Ready", "Unknown", Reason.NOT_OBSERVED, "the engine does not answer")
    health = instance_health(instance("web-dfw-0", "DFW", ready))
    assert health.word == "Unknown"
    assert short_text(health) == "Unknown (not observed)"
