"""The wait for a rollout: stalls, causes that end it, and crashes that a restart ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.cli.environment import CliTimeouts
from datum_compute.cli.workload.crashes import is_crash_loop
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner
from tests.cli.world import (
    World,
    image_missing,
    no_controllers,
    report,
    simulated_gateway,
    workloads,
)

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW", "-y")
CRASHED = ("InstanceCrashing", "container app exited with code 1; not restarted yet")

pytestmark = pytest.mark.usefixtures("local_platform")


def test_a_cause_that_needs_the_user_ends_the_wait(cli: CliRunner, world: World) -> None:
    world.player = image_missing
    cli.timeouts = CliTimeouts(user_cause_s=0)
    assert cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y") == 20
    error, hint = cli.err.splitlines()[-2:]
    assert "the rollout of 'web' failed: Instance web-" in error
    assert "is not ready (ImageUnavailable): no such tag: web:9" in error
    assert hint.endswith("Next: datumctl compute deploy web --image=IMAGE")
    assert "rollout undo" not in cli.err, "the workload has only one revision"


def test_a_stall_is_reported_once_with_cause_owner_and_next_command(
    cli: CliRunner, world: World
) -> None:
    world.player = no_controllers
    cli.timeouts = CliTimeouts(stall_s=0, reread_s=1)
    assert cli.run(*FIRST, "--timeout=2s") == 21
    (line,) = [line for line in cli.err.splitlines() if line.startswith("No progress")]
    assert "Workload web is not ready (Pending)" in line
    assert "kubeconfig get workload web --namespace=default --watch" in line
    assert "Explain: datumctl compute explain web" in cli.err.splitlines()
    assert cli.run("explain", "web") == 0


def test_an_instance_that_stops_within_its_grace_period_is_no_stall(
    cli: CliRunner, world: World
) -> None:
    world.player = slow_to_stop
    cli.timeouts = CliTimeouts(stall_s=0, user_cause_s=0, reread_s=1)
    assert cli.run(*FIRST, "--timeout=2s") == 21
    assert not [line for line in cli.err.splitlines() if "No progress" in line and "Stop" in line]
    assert "Stopping: Waiting for the instance to stop, up to 30 s" in cli.err


async def slow_to_stop(client: Client) -> None:
    async for workload in workloads(client):
        message = "Waiting for the instance to stop, up to 30 s"
        await report(client, workload, failure=("Stopping", message))


# --- crashes


def crash_report(restarts: int, **fields: Any) -> JsonObject:
    times = {"startedAt": "2027-01-15T08:00:00Z", "endedAt": "2027-01-15T08:00:01Z"}
    named = {"planned": False, "templateHash": "", "message": "exited with code 1"}
    return {**times, **named, "restarts": restarts, **fields}


def gateway_with(
    reports: list[JsonObject], read: asyncio.Event
) -> Callable[[Request], Response | None]:
    """A gateway that serves these crash reports, and sets ``read`` when it has done so."""

    def respond(request: Request) -> Response | None:
        if not request.path.endswith("/crashes"):
            return simulated_gateway(request)
        read.set()
        return Response(200, encode({"items": reports}))

    return respond


def crash_until(recovers: asyncio.Event) -> Callable[[Client], Coroutine[Any, Any, None]]:
    """Report a crash, and a ready instance after the event."""

    async def player(client: Client) -> None:
        async for workload in workloads(client):
            await report(client, workload, failure=CRASHED)
            await recovers.wait()
            await report(client, workload)

    return player


def test_a_container_that_crashes_once_and_then_runs_is_no_failure(
    cli: CliRunner, world: World
) -> None:
    was_read = asyncio.Event()
    world.player, world.gateway = crash_until(was_read), gateway_with([crash_report(0)], was_read)
    cli.timeouts = CliTimeouts(user_cause_s=0)
    assert cli.run(*FIRST) == 0
    assert was_read.is_set()
    assert "failed" not in cli.err
    assert "web is ready" in cli.err


def test_a_crash_after_two_restarts_ends_the_wait(cli: CliRunner, world: World) -> None:
    never = asyncio.Event()
    reports = [crash_report(number) for number in range(3)]
    world.player, world.gateway = crash_until(never), gateway_with(reports, asyncio.Event())
    cli.timeouts = CliTimeouts(user_cause_s=0)
    assert cli.run(*FIRST) == 20
    assert "is not ready (InstanceCrashing)" in cli.err


def test_without_crash_reports_the_duration_of_the_crash_decides(
    cli: CliRunner, world: World
) -> None:
    world.player = crash_until(asyncio.Event())
    cli.timeouts = CliTimeouts(user_cause_s=0, crash_s=60)
    assert cli.run(*FIRST, "--timeout=1s") == 21
    cli.timeouts = CliTimeouts(user_cause_s=0, crash_s=0)
    assert cli.run(*FIRST, "--timeout=60s") == 20


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param([], False, id="no report"),
        pytest.param([crash_report(0), crash_report(1)], False, id="restarted once"),
        pytest.param([crash_report(1), crash_report(2)], True, id="restarted twice"),
        pytest.param([crash_report(2, planned=True)], False, id="stopped by the rollout"),
        pytest.param([crash_report(2, templateHash="other")], False, id="another template"),
        pytest.param(
            [crash_report(5, startedAt="2027-01-15T07:00:00Z")], False, id="after a long run"
        ),
        pytest.param([crash_report(2, startedAt="")], True, id="start unknown"),
        pytest.param([crash_report(2, startedAt="soon")], True, id="start unreadable"),
    ],
)
def test_a_crash_loop_is_a_crash_after_two_restarts(
    reports: list[JsonObject], expected: bool
) -> None:
    assert is_crash_loop(reports, "current") is expected
