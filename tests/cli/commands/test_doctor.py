"""``doctor``: every check, and one line for each unhealthy workload."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.labels import CELL, WORKLOAD_UID
from datum_compute.api.meta.objects import Ref
from datum_compute.api.quota import INSTANCES
from datum_compute.client.client import Client
from tests.cli.objects import condition
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    bucket,
    deprecate_type,
    gateway_without_cell,
    image_missing,
    no_controllers,
    place_instances,
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


@pytest.mark.parametrize("reason", ["ProgressDeadlineExceeded", "RolledBack"])
def test_doctor_warns_of_a_failed_rollout_of_a_workload_that_serves(
    cli: CliRunner, world: World, reason: str
) -> None:
    cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y")

    async def fail(client: Client) -> None:
        serving = condition("Available", "True", "AvailablePlacementFound", "1/1 ready")
        failed = condition("Progressing", "False", reason, "DFW: the image crashes")
        await set_status(client, WORKLOAD, "web", {"conditions": [serving, failed]})

    world.player = no_controllers
    world.do(fail)
    assert cli.run("doctor", "web", "-o", "json") == 0
    finding = json.loads(cli.out)["items"][-1]
    assert finding["state"] == "warning"
    assert finding["text"] == "Available, but the rollout failed: DFW: the image crashes"
    assert finding["next"] == "datumctl compute explain web"


HEARTBEAT = "2027-01-15T07:59:37.000000Z"  # 23 s before the time of the command line


def test_verdicts_that_depend_on_a_cell_that_does_not_respond_state_their_time(
    cli: CliRunner, world: World
) -> None:
    """Regression: "cell dfw does not answer" and "workload web ok" were printed together."""
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y") == 0
    assert cli.run("deploy", "api", "--image=api:1", "--city=DFW", "-y") == 0
    world.player = no_controllers

    async def place(client: Client) -> None:
        await place_instances(client, "iad")
        uid = (await client.get(WORKLOAD, Ref(NAMESPACE, "web"))).metadata.uid
        for instance in (await client.list(INSTANCE, NAMESPACE, labels={WORKLOAD_UID: uid})).items:
            patch = {"metadata": {"labels": {CELL: "dfw"}}}
            await client.patch(INSTANCE, Ref(NAMESPACE, instance.metadata.name), patch)

    world.do(place)
    world.gateway = gateway_without_cell("dfw", HEARTBEAT)
    assert cli.run("doctor", "-o", "json") == 20
    states = found(cli)
    items = {item["check"]: item for item in json.loads(cli.out)["items"]}
    assert states["driver"] == "failed"
    assert states["cities"] == states["workload web"] == "warning"
    text = f"Available, as of {HEARTBEAT} (23s ago): cell dfw does not respond"
    assert items["workload web"]["text"] == text
    assert items["workload web"]["asOf"] == items["cities"]["asOf"] == HEARTBEAT
    assert items["workload web"]["next"] == "datumctl compute cities -o wide"
    assert (states["workload api"], items["workload api"]["asOf"]) == ("ok", "")
    world.gateway = gateway_without_cell("dfw")
    assert cli.run("doctor", "web") == 20
    assert "Available, as of the last report: cell dfw does not respond" in cli.out


def test_a_deprecated_instance_type_is_a_warning(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y") == 0
    world.do(lambda client: deprecate_type(client, "d1-standard-2", "d2-standard-2"))
    assert cli.run("doctor", "web", "-o", "json") == 0
    finding = json.loads(cli.out)["items"][-1]
    assert finding["state"] == "warning"
    assert "Available; instance type " in finding["text"]
    assert finding["text"].endswith("d1-standard-2 is deprecated: use d2-standard-2")
    assert " edit workload web" in finding["next"]


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
