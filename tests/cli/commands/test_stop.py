"""``stop`` and ``start``: what they write and wait for, and how other commands show the state."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.objects import ref_of
from datum_compute.cli.render.events import HaltedEvent
from datum_compute.client.client import Client
from tests.cli.objects import condition
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    counts,
    healthy,
    no_controllers,
    report,
    set_status,
    spec,
    workloads,
)

Player = Callable[[Client], Coroutine[Any, Any, None]]
pytestmark = pytest.mark.usefixtures("web")


def halted(reason: str, message: str) -> Player:
    """Return a player that reports every workload, city and instance with this reason."""

    async def play(client: Client) -> None:
        async for workload in workloads(client):
            await report(client, workload)
            down = condition("Available", "False", reason, message)
            waiting = condition("Progressing", "Unknown", reason, message)
            status = {**counts(0, 2), "replicas": 2, "conditions": [down, waiting]}
            for deployment in (await client.list(DEPLOYMENT, NAMESPACE)).items:
                fields = {**status, "observedGeneration": deployment.metadata.generation}
                await set_status(client, DEPLOYMENT, deployment.metadata.name, fields)
            for instance in (await client.list(INSTANCE, NAMESPACE)).items:
                ready = condition("Ready", "False", reason, message)
                ref, stopped = ref_of(instance), {"controller": {"stopped": True}}
                await client.patch(INSTANCE, ref, {"spec": stopped})
                await set_status(client, INSTANCE, ref.name, {"conditions": [ready]})
            fields = {**status, "observedGeneration": workload.metadata.generation}
            await set_status(client, WORKLOAD, workload.metadata.name, fields)

    return play


STOPPED = halted("Stopped", "The workload is stopped")
SUSPENDED = halted("ProjectSuspended", "The project is suspended")


def test_stop_waits_until_nothing_runs_and_start_runs_the_same_instances(
    cli: CliRunner, world: World
) -> None:
    world.player = STOPPED
    assert cli.run("stop", "web") == 0, cli.err
    assert spec(world)["stopped"] is True
    assert "Start it again: datumctl compute start web" in cli.err
    assert "web is stopped: 2 instances kept" in cli.err + cli.out
    assert cli.run("stop", "web") == 0
    assert cli.out.startswith("workload/web unchanged\n")
    world.player = healthy
    assert cli.run("start", "web") == 0
    assert "stopped" not in spec(world)
    assert "web is ready: 2 instances" in cli.err + cli.out


def test_stop_without_a_wait_returns_at_once_and_a_late_stop_ends_with_its_cause(
    cli: CliRunner, world: World
) -> None:
    world.player = no_controllers
    assert cli.run("stop", "web", "--no-wait") == 0
    assert spec(world)["stopped"] is True
    world.player = halted(
        "Stopping", "Instances in DFW are being stopped, because the workload is stopped"
    )
    assert cli.run("stop", "web", "--timeout=1s") == 21
    assert "is not stopped after 1s: Instances in DFW are being stopped" in cli.err


def test_the_event_of_a_stop_has_the_documented_fields(cli: CliRunner, world: World) -> None:
    world.player = STOPPED
    assert cli.run("stop", "web", "-o", "json") == 0
    event = json.loads(cli.out.splitlines()[-1])
    assert (event["event"], event["instances"]) == ("stopped", 2)
    assert tuple(event) == ("schema", "event", "at", *HaltedEvent.__struct_encode_fields__)


@pytest.mark.parametrize(
    ("player", "word", "rollout", "next_step"),
    [
        (STOPPED, "Stopped", "Stopped; start it: datumctl compute start web", "start web"),
        (SUSPENDED, "Suspended", "Suspended with the project", "compute access"),
    ],
    ids=["stopped", "suspended"],
)
def test_other_commands_show_a_halt_and_no_failure(
    cli: CliRunner,
    world: World,
    player: Player,
    word: str,
    rollout: str,
    next_step: str,
) -> None:
    world.player = player
    assert cli.run("stop", "web") == 0
    assert cli.run("status", "web") == 0
    assert f"Health:    {word}: The" in cli.out
    assert f"Rollout:   {rollout}" in cli.out
    assert cli.run("instances") == 0
    assert f" {word}" in cli.out
    assert "Failed" not in cli.out
    assert cli.run("workloads") == 0
    assert word in cli.out
    assert cli.run("explain", "web") == 0
    assert next_step in cli.out
    cli.run("doctor", "web")
    assert f"{word}: The" in cli.out
    assert cli.run("rollout", "status", "web") == 0, "the wait for a halted workload does not end"


def test_a_deploy_keeps_a_workload_stopped(cli: CliRunner, world: World) -> None:
    world.player = STOPPED
    assert cli.run("stop", "web") == 0
    assert cli.run("deploy", "web", "--image=web:2", "-y") == 0, cli.err
    assert spec(world)["stopped"] is True
    assert "web is stopped. Start it: datumctl compute start web" in cli.err + cli.out
