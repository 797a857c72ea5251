"""``doctor``: every check, and one line for each unhealthy workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.quota import INSTANCES
from datum_compute.client.client import Client
from tests.cli.objects import condition
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    bucket,
    image_missing,
    no_controllers,
    set_status,
    write_kubeconfig,
)

CHECKS = ["sign-in", "clock", "access", "quota", "cities", "network", "driver"]


pytestmark = pytest.mark.usefixtures("local_platform")


def found(cli: CliRunner) -> dict[str, str]:
    return {item["check"]: item["state"] for item in json.loads(cli.out)["items"]}


def test_doctor_checks_a_healthy_platform(cli: CliRunner) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y")
    assert cli.run("doctor", "-o", "json") == 0
    states = found(cli)
    assert list(states) == [*CHECKS, "workload web"]
    # The clocks of this world are five minutes apart.
    assert states.pop("clock") == "warning"
    assert set(states.values()) == {"ok"}


def test_doctor_exits_20_with_cause_and_next_command_of_a_broken_workload(
    cli: CliRunner, world: World
) -> None:
    world.player = image_missing
    cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--no-wait")
    cli.run("rollout", "status", "web", "--timeout=1s")
    assert cli.run("doctor", "web", "-o", "json") == 20
    finding = json.loads(cli.out)["items"][-1]
    assert finding["state"] == "failed"
    assert "(ImageUnavailable): no such tag: web:9" in finding["text"]
    assert finding["next"] == "datumctl compute deploy web --image=IMAGE"
    assert finding["cause"]["move"] == "you"
    assert json.loads(cli.err)["error"]["code"] == 20


@pytest.mark.parametrize(
    ("since", "state", "word"),
    [("2027-01-15T07:59:00Z", "warning", "wait"), ("2027-01-15T07:00:00Z", "failed", "stalled")],
)
def test_a_transient_state_is_broken_only_after_its_deadline(
    cli: CliRunner, world: World, since: str, state: str, word: str
) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y")

    async def delay(client: Client) -> None:
        starting = condition("Ready", "False", "Starting", "booting")
        starting["lastTransitionTime"] = since
        for instance in (await client.list(INSTANCE, NAMESPACE)).items:
            await set_status(client, INSTANCE, instance.metadata.name, {"conditions": [starting]})
        missing = condition("Available", "False", "InstancesProvisioning", "none yet")
        await set_status(client, WORKLOAD, "web", {"conditions": [missing]})
        for deployment in (await client.list(DEPLOYMENT, NAMESPACE)).items:
            await set_status(
                client, DEPLOYMENT, deployment.metadata.name, {"conditions": [missing]}
            )

    world.player = no_controllers
    world.do(delay)
    assert cli.run("doctor", "web", "-o", "json") == (20 if state == "failed" else 0)
    finding = json.loads(cli.out)["items"][-1]
    assert finding["state"] == state
    assert word in finding["text"]


def test_an_exhausted_quota_is_a_warning(cli: CliRunner, world: World) -> None:
    world.do(lambda client: bucket(client, INSTANCES, 3, 3))
    assert cli.run("doctor", "-o", "json") == 0
    assert found(cli)["quota"] == "warning"


def test_a_refused_token_ends_the_checks(cli: CliRunner, tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "unknown")
    assert cli.run("doctor", "-o", "json") == 20
    assert found(cli) == {"sign-in": "failed"}


def test_an_unknown_workload_is_reported_with_a_suggestion(cli: CliRunner) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y")
    assert cli.run("doctor", "wbe") == 3
    assert "Did you mean 'web'?" in cli.err
