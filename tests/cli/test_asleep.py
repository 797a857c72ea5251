"""Sleeping instances and paused rollouts are shown, and end the wait of a command."""

from __future__ import annotations

import json

import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.cli.render.events import PausedEvent
from datum_compute.client.client import Client
from tests.cli.objects import condition
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World, counts, healthy, report, set_status, workloads

pytestmark = pytest.mark.usefixtures("local_platform")

DEPLOY = ("deploy", "web", "--city=DFW", "-y")


async def sleepy(client: Client) -> None:
    """Everything comes about, and falls asleep at once."""
    async for workload in workloads(client):
        await report(client, workload)
        for instance in (await client.list(INSTANCE, NAMESPACE)).items:
            conditions = [
                condition("Ready", "True", "Available", ""),
                condition("Available", "True", "Asleep", "Asleep; the first request wakes it"),
            ]
            await set_status(client, INSTANCE, instance.metadata.name, {"conditions": conditions})


async def held(client: Client) -> None:
    """What runs goes on, and none of it is exchanged."""
    async for workload in workloads(client):
        await report(client, workload)
        for deployment in (await client.list(DEPLOYMENT, NAMESPACE)).items:
            fields = {
                **counts(1, 1),
                "updatedReplicas": 0,
                "observedGeneration": deployment.metadata.generation,
                "conditions": [condition("Progressing", "Unknown", "RolloutPaused", "Paused")],
            }
            await set_status(client, DEPLOYMENT, deployment.metadata.name, fields)


def test_status_and_explain_show_sleeping_instances(cli: CliRunner, world: World) -> None:
    world.player = sleepy
    assert cli.run(*DEPLOY, "--image=web:1", "--no-wait") == 0
    assert cli.run("rollout", "status", "web") == 0
    assert "1 instance asleep; a connection wakes it" in cli.err + cli.out
    assert cli.run("status", "web") == 0
    assert "Asleep:    1 of 1 instance; a connection wakes them" in cli.out
    assert "asleep: Asleep; the first request wakes it" in cli.out
    assert cli.run("explain", "web") == 0
    assert "Available is True (Asleep" in cli.out
    assert "Waiting for: the first request, which starts it" in cli.out
    assert cli.run("status", "web", "-o", "json") == 0
    assert [i["asleep"] for i in json.loads(cli.out)["instances"]] == [True]


def test_a_running_instance_is_not_shown_as_asleep(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY, "--image=web:1") == 0
    assert cli.run("status", "web") == 0
    assert "leep" not in cli.out
    assert cli.run("explain", "web") == 0
    assert "leep" not in cli.out


def test_a_deploy_to_a_paused_workload_succeeds_and_reports_the_pause(
    cli: CliRunner, world: World
) -> None:
    assert cli.run(*DEPLOY, "--image=web:1") == 0
    world.player = held
    assert cli.run("rollout", "pause", "web") == 0
    assert "paused: false -> true" in cli.err
    assert cli.run(*DEPLOY, "--image=web:2", "--timeout=60s") == 0, cli.err
    output = cli.out + cli.err
    assert (
        "Paused: no instance is replaced until you resume the rollout: datumctl compute" in output
    )
    assert "The rollout of web is paused: 0 of 1 instance are up to date." in output
    assert "datumctl compute rollout resume web" in output
    assert "web is ready" not in output
    assert cli.run("status", "web") == 0
    assert "Rollout:   Paused; resume it: datumctl compute rollout resume web" in cli.out
    assert cli.run("explain", "web") == 0
    assert "Next:        datumctl compute rollout resume web\n" in cli.out
    world.player = healthy
    assert cli.run("rollout", "resume", "web") == 0
    assert "web is ready" in cli.out + cli.err


def test_the_event_of_a_paused_rollout_has_the_documented_fields(
    cli: CliRunner, world: World
) -> None:
    assert cli.run(*DEPLOY, "--image=web:1") == 0
    world.player = held
    assert cli.run("rollout", "pause", "web") == 0
    assert cli.run(*DEPLOY, "--image=web:2", "-o", "json") == 0
    event = json.loads(cli.out.splitlines()[-1])
    assert event["event"] == "paused"
    assert tuple(event) == ("schema", "event", "at", *PausedEvent.__struct_encode_fields__)
