"""``status``: text and JSON output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from datum_compute.api.compute.workload import PlacementStatus
from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.cli.render.health import (
    Health,
    aged_text,
    instance_health,
    short_text,
    workload_health,
)
from datum_compute.client.client import Client
from tests.cli.objects import condition, instance, workload
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    image_missing,
    no_controllers,
    set_status,
    write_kubeconfig,
)


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    assert cli.run("deploy", "web", "--image=reg.test/web:1", "--city=DFW,ORD", "-y") == 0
    return cli


def instance_names(world: World) -> list[str]:
    listed = world.do(lambda client: client.list(INSTANCE, NAMESPACE))
    return sorted(item.metadata.name for item in listed.items)


def columns(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_status_of_a_healthy_workload(cli: CliRunner, world: World) -> None:
    assert cli.run("status", "web") == 0
    head, cities, instances = cli.out.split("\n\n")
    assert head.splitlines() == [
        "Workload:  web (project/default)",
        "Image:     reg.test/web:1",
        "Created:   5m ago",
        "Health:    Available",
        "Rollout:   Done",
    ]
    assert cities.splitlines() == [
        "CITY   PLACEMENT   READY   UP-TO-DATE   DESIRED   ROLLOUT   REASON",
        "DFW    default     1       1/1          1         Done      -",
        "ORD    default     1       1/1          1         Done      -",
    ]
    assert columns(instances)[0] == ["INSTANCE", "CITY", "STATUS", "ADDRESS", "AGE", "REASON"]
    assert [row[1:] for row in columns(instances)[1:]] == [
        ["DFW", "Available", "10.0.0.0", "5m", "-"],
        ["ORD", "Available", "10.0.0.0", "5m", "-"],
    ]
    assert sorted(row[0] for row in columns(instances)[1:]) == instance_names(world)


def test_status_of_a_broken_workload_shows_the_reason_unchanged(
    cli: CliRunner, world: World
) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "-y", "--timeout=1s")
    assert cli.run("status", "web") == 0
    assert "Health:    Unavailable: image unavailable: no such tag: web:9\n" in cli.out
    assert "Rollout:   In progress: image unavailable (in DFW)\n" in cli.out


def test_status_shows_why_a_rollout_has_no_surge_instance(cli: CliRunner, world: World) -> None:
    missing = condition("SurgeAvailable", "False", "SurgeUnavailable", "DFW: no quota")
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"conditions": [missing]}))
    assert cli.run("status", "web") == 0
    assert "Surge:     DFW: no quota\n" in cli.out


def test_status_prints_a_message_once(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "-y", "--timeout=1s")
    assert cli.run("status", "web") == 0
    assert cli.out.count("no such tag") == 1
    assert cli.out.count("image unavailable") == 6, "each row has the reason"


def test_status_shows_a_rollback_after_the_failed_city_was_removed(
    cli: CliRunner, world: World
) -> None:
    cities = [{"placement": "default", "city": "ORD", "state": "Done", "templateHash": "a"}]
    rollout = {"templateHash": "a", "cities": cities, "failedRevision": 2, "runningRevision": 1}
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"rollout": rollout}))
    assert cli.run("status", "web") == 0
    assert "Rollout:   Failed; revision 1 was restored\n" in cli.out


def test_status_of_a_stopped_workload_shows_how_to_start_it_after_a_rollback(
    cli: CliRunner, world: World
) -> None:
    stopped = condition("Progressing", "Unknown", "Stopped", "The workload is stopped")
    status = {
        "rollout": {"templateHash": "a", "failedRevision": 2, "runningRevision": 1},
        "conditions": [stopped],
    }
    world.do(lambda client: set_status(client, WORKLOAD, "web", status))
    assert cli.run("status", "web") == 0
    assert "Rollout:   Stopped; start it: datumctl compute start web" in cli.out


@pytest.mark.parametrize(
    ("revisions", "text"),
    [
        ({}, "Failed: image unavailable (in DFW)"),
        (
            {"failedRevision": 2, "runningRevision": 1},
            "Failed in DFW; revision 1 was restored",
        ),
    ],
)
def test_status_names_the_city_that_failed(
    cli: CliRunner, world: World, revisions: dict[str, int], text: str
) -> None:
    cause = {"reason": "ImageUnavailable", "message": "no such tag"}
    cities = [
        {"placement": "default", "city": "DFW", "state": "Failed", "templateHash": "b", **cause},
        {"placement": "default", "city": "ORD", "state": "Waiting", "templateHash": "a"},
    ]
    rollout = {"templateHash": "b", "cities": cities, **revisions}
    world.do(lambda client: set_status(client, WORKLOAD, "web", {"rollout": rollout}))
    assert cli.run("status", "web") == 0
    head, places, _ = cli.out.split("\n\n")
    assert head.splitlines()[-1] == f"Rollout:   {text}"
    rows = [line.split(maxsplit=6) for line in places.splitlines()[1:]]
    assert [row[5] for row in rows] == ["Failed", "Waiting"]
    assert [row[3] for row in rows] == ["1/1", "0/1"], "the waiting city has no current instance"


def test_json_and_yaml_contain_the_same_document(cli: CliRunner, world: World) -> None:
    assert cli.run("status", "web", "-o", "json") == 0
    report = json.loads(cli.out)
    assert cli.run("status", "web", "-o", "yaml") == 0
    assert yaml.safe_load(cli.out) == report
    assert (report["name"], report["place"]) == ("web", "project/default")
    assert (report["health"], report["rolloutDone"]) == ("Available", True)
    assert report["containers"] == [{"name": "app", "image": "reg.test/web:1"}]
    assert [city["city"] for city in report["cities"]] == ["DFW", "ORD"]
    assert [i["name"] for i in report["instances"]] != []
    assert report["createdAt"].endswith("Z")


def test_a_city_without_a_deployment_is_shown_as_waiting(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    cli.run("deploy", "web", "--city=DFW,ORD,AMS", "-y", "--no-wait")
    assert cli.run("status", "web") == 0
    assert "AMS    default     0       0/1          1         Waiting   -" in cli.out
    assert "Rollout:   In progress: the platform has not observed generation 2 yet\n" in cli.out


def test_text_of_users_contains_no_terminal_control(cli: CliRunner, world: World) -> None:
    nasty = condition("Ready", "False", "Crashed", "\x1b[2J\x1b]0;owned\x07line\nbreak\u202e")

    async def write(client: Client) -> None:
        (name, *_) = [i.metadata.name for i in (await client.list(INSTANCE, NAMESPACE)).items]
        await set_status(client, INSTANCE, name, {"conditions": [nasty]})

    world.player = no_controllers
    world.do(write)
    cli.is_terminal, cli.environ, cli.columns = True, {"NO_COLOR": "1"}, 200
    assert cli.run("status", "web") == 0
    assert "crashed: [2J]0;ownedline break\n" in cli.out
    assert cli.out.replace("\n", "").isprintable()


def test_health_is_colored_on_a_terminal(cli: CliRunner) -> None:
    cli.is_terminal = True
    cli.run("status", "web")
    assert "\x1b[32mHealth:    Available\x1b[0m\n" in cli.out


def test_an_unknown_name_exits_3_with_a_suggestion(cli: CliRunner) -> None:
    assert cli.run("status", "wep") == 3
    assert cli.err.splitlines() == [
        "error: there is no workload 'wep' in project/default",
        "Did you mean 'web'?",
    ]


def test_an_unknown_name_without_a_similar_one_lists_all(cli: CliRunner) -> None:
    assert cli.run("status", "database") == 3
    assert cli.err.endswith("Existing names: web\n")


def test_an_empty_project_prints_how_to_deploy(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    cli = CliRunner(home=tmp_path, open_transport=World().open)
    assert cli.run("status", "web") == 3
    assert "datumctl compute deploy web --image=IMAGE --city=DFW" in cli.err


def test_only_the_named_workload_is_shown(cli: CliRunner, world: World) -> None:
    cli.run("deploy", "api", "--image=api:1", "--city=DFW", "-y")
    cli.run("status", "web", "-o", "json")
    names = [i["name"] for i in json.loads(cli.out)["instances"]]
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
        (
            {
                "conditions": available("True"),
                "desiredReplicas": 3,
                "readyReplicas": 2,
                "coveredReplicas": 1,
            },
            Health("Available"),
        ),
    ],
)
def test_health_is_one_word(status: dict[str, Any], health: Health) -> None:
    assert workload_health(workload("DFW", **status)) == health


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (Reason.NOT_READY, "NotReady"),
        (Reason.STOPPING, "Stopping"),
        (Reason.STARTING, "Starting"),
        (Reason.PENDING_QUOTA, "Pending (quota)"),
        (Reason.STOPPED, "Failed (stopped)"),
        (Reason.PROVISIONING, "Pending (no room in DFW)"),
        (Reason.UNSCHEDULABLE, "Pending (no room in DFW)"),
        (Reason.NETWORK_NOT_FOUND, "Pending (network not found)"),
    ],
)
def test_the_status_of_an_instance_depends_on_the_reason_of_ready(reason: str, text: str) -> None:
    ready = condition("Ready", "False", reason, "why")
    assert short_text(instance_health(instance("web-dfw-0", "DFW", ready))) == text


def test_an_instance_that_is_stopped_on_request_has_not_failed() -> None:
    ready = condition("Ready", "False", Reason.STOPPED, "The workload is stopped")
    found = instance("web-dfw-0", "DFW", ready)
    control = replace(found.spec.controller, stopped=True)
    found = replace(found, spec=replace(found.spec, controller=control))
    assert short_text(instance_health(found)) == "Stopped"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("Stopped", "Unavailable (stopped)"),
        ("Unschedulable", "Unavailable (no room in DFW)"),
        ("ImageUnavailable", "Unavailable (image unavailable)"),
    ],
)
def test_the_health_of_a_workload_states_the_cause(reason: str, text: str) -> None:
    conditions = [{**available("False", reason)[0], "observedGeneration": 1}]
    found = workload("DFW", conditions=conditions)
    placements = [PlacementStatus(name="default", conditions=found.status.conditions)]
    found = replace(found, status=replace(found.status, placements=placements))
    assert short_text(workload_health(found)) == text


def test_a_workload_that_is_stopped_on_request_is_stopped() -> None:
    found = workload("DFW", conditions=available("False", "Stopped"))
    found = replace(found, spec=replace(found.spec, stopped=True))
    assert short_text(workload_health(found)) == "Stopped"


def test_the_age_of_an_unreachable_cell_is_the_age_of_the_condition() -> None:
    """The text of the message has no influence."""
    ready = condition(
        "Ready", "Unknown", "CellUnreachable", "any text", since="2027-01-15T07:59:20Z"
    )
    health = instance_health(instance("web-dfw-0", "DFW", ready))
    now = parse_timestamp("2027-01-15T08:00:00Z")
    assert aged_text(health, now) == "Unknown (cell unreachable), as of 40s ago"


def test_an_instance_without_an_observed_status_is_unknown() -> None:
    ready = condition("Ready", "Unknown", Reason.NOT_OBSERVED, "the engine does not respond")
    health = instance_health(instance("web-dfw-0", "DFW", ready))
    assert health.word == "Unknown"
    assert short_text(health) == "Unknown (not observed)"
