"""``explain``: the cause, who must act, and the crash reports that belong to it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import msgspec
import pytest

from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, encode, to_json
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.client.client import Client
from datum_compute.drivers.queries import CrashReport, CrashReportList
from datum_compute.planning.workload.templates import template_hash
from tests.cli.runner import NOW, CliRunner, deployed
from tests.cli.world import (
    NAMESPACE,
    World,
    deprecate_type,
    gateway_without_cell,
    healthy,
    image_missing,
    no_controllers,
    place_instances,
    report,
    workloads,
)


async def starting(client: Client) -> None:
    async for workload in workloads(client):
        await report(client, workload, failure=("Starting", "the containers are being started"))


@pytest.fixture
def world() -> World:
    return World(player=starting)


@pytest.fixture
def cli(cli: CliRunner, local_platform: None) -> CliRunner:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y", "--timeout=1s")
    return cli


def current_template(world: World) -> str:
    (found,) = world.do(lambda client: client.list(DEPLOYMENT, NAMESPACE)).items
    return template_hash(found.spec.template)


def crash(message: str, template: str, ago_s: float) -> CrashReport:
    ended_at = timestamp(NOW - ago_s)
    return CrashReport(ended_at=ended_at, message=message, template_hash=template)


def answer_crashes(world: World, *reports: CrashReport) -> None:
    def answer(request: Request) -> Response | None:
        is_read = request.path.endswith("/crashes")
        return (
            Response(200, encode(to_json(CrashReportList(items=list(reports)))))
            if is_read
            else None
        )

    world.gateway = answer


def explained(cli: CliRunner) -> JsonObject:
    assert cli.run("explain", "web", "-o", "json") == 0
    found: JsonObject = json.loads(cli.out)
    return found


def test_a_crash_of_another_template_is_not_the_cause(cli: CliRunner, world: World) -> None:
    """A rollout undo leaves the instance with its name and a new template."""
    answer_crashes(world, crash("container app exited with code 1", "undone", ago_s=40))
    found = explained(cli)
    assert found["crashes"] == []
    assert [end["templateHash"] for end in found["earlierCrashes"]] == ["undone"]
    assert cli.run("explain", "web") == 0
    assert "\nEnded 40s ago" not in cli.out
    history = "Ended before, with another version:\n  40s ago: container app exited with code 1\n"
    assert history in cli.out


def test_crashes_of_an_earlier_workload_with_the_same_name_are_not_shown(
    cli: CliRunner, world: World
) -> None:
    """The instances of both workloads are named web-default-dfw-0."""
    (web,) = world.do(lambda client: client.list(WORKLOAD, NAMESPACE)).items
    template = current_template(world)
    earlier, own = (
        msgspec.structs.replace(crash(message, template, ago_s), workload_uid=uid)
        for message, ago_s, uid in (
            ("exited with code 1", 60, "earlier"),
            ("exited with code 2", 30, web.metadata.uid),
        )
    )
    answer_crashes(world, earlier, own)
    assert [end["message"] for end in explained(cli)["crashes"]] == ["exited with code 2"]
    assert cli.run("instances", "describe", "web-default-dfw-0") == 0
    assert "exited with code 2" in cli.out
    assert "exited with code 1" not in cli.out
    answer_crashes(world, own, earlier)
    assert cli.run("instances", "describe", "web-default-dfw-9") == 0
    assert "exited with code 1" in cli.out
    assert "exited with code 2" not in cli.out, "the last workload with this name is shown"


def test_a_crash_of_the_current_template_is_shown_in_full(cli: CliRunner, world: World) -> None:
    undone = crash("out of memory", "undone", ago_s=90)
    of_earlier_release = crash("exited with code 2", "", ago_s=60)
    current = crash("exited with code 3", current_template(world), ago_s=30)
    answer_crashes(world, undone, of_earlier_release, current)
    found = explained(cli)
    assert [end["message"] for end in found["crashes"]] == [
        "exited with code 2",
        "exited with code 3",
    ]
    assert [end["message"] for end in found["earlierCrashes"]] == ["out of memory"]
    assert cli.run("explain", "web") == 0
    assert "\nEnded 30s ago: exited with code 3\n" in cli.out


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


def test_explain_of_a_healthy_workload_needs_no_action(cli: CliRunner, world: World) -> None:
    world.player = healthy
    deployed(cli, "DFW")
    assert cli.run("explain", "web") == 0
    assert "Healthy. No action needed." in cli.out


def test_explain_accepts_an_instance(cli: CliRunner, world: World) -> None:
    world.player = healthy
    deployed(cli, "DFW")
    listed = world.do(lambda client: client.list(INSTANCE, "default"))
    name = listed.items[0].metadata.name
    assert cli.run("explain", name) == 0
    assert cli.out.startswith(f"Instance {name}: Ready is True")
    assert cli.run("explain", "wbe") == 3
    assert "Did you mean 'web'?" in cli.err


def test_the_state_on_a_cell_that_does_not_respond_has_a_time(cli: CliRunner, world: World) -> None:
    world.player = healthy
    cli.run("rollout", "status", "web", "--timeout=5s")
    world.player = no_controllers
    world.do(lambda client: place_instances(client, "dfw"))
    heartbeat = "2027-01-15T07:59:37.000000Z"
    world.gateway = gateway_without_cell("dfw", heartbeat)
    assert explained(cli)["asOf"] == heartbeat
    assert cli.run("explain", "web") == 0
    assert f"as of {heartbeat} (23s ago): cell dfw does not respond" in cli.out
    assert "Healthy. No action needed." not in cli.out
    world.gateway = gateway_without_cell("iad", heartbeat)
    assert explained(cli)["asOf"] == ""


def test_a_deprecated_instance_type_is_reported(cli: CliRunner, world: World) -> None:
    assert explained(cli)["warnings"] == []
    world.do(lambda client: deprecate_type(client, "d1-standard-2", "d2-standard-2"))
    (warning,) = explained(cli)["warnings"]
    assert "d1-standard-2 is deprecated: use d2-standard-2" in warning
    assert " edit workload web" in warning
    assert cli.run("explain", "web") == 0
    assert f"Warning: {warning}" in cli.out


def test_cells_that_report_slowly_do_not_delay_the_explanation(
    cli: CliRunner, world: World
) -> None:
    async def delay_drivers(request: Request, _client: Client) -> None:
        if request.path.endswith("/drivers"):
            await asyncio.sleep(60)

    world.before = delay_drivers
    cli.timeouts = replace(cli.timeouts, cells_read_s=0.05)
    assert explained(cli)["asOf"] == ""
