"""``start`` removes the stop of a workload and waits until its instances are ready."""

from __future__ import annotations

import pytest

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import Client
from datum_compute.planning.workload.templates import template_hash
from tests.cli.commands.test_stop import STOPPED, SUSPENDED
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World, healthy, set_status, spec

pytestmark = pytest.mark.usefixtures("web")


def test_start_waits_until_the_instances_are_ready(cli: CliRunner, world: World) -> None:
    world.player = STOPPED
    assert cli.run("stop", "web") == 0
    world.player = healthy
    assert cli.run("start", "web") == 0
    assert "stopped" not in spec(world)
    assert "web is ready: 2 instances" in cli.err + cli.out
    assert cli.err.startswith("Starting the instances of web.\n")
    assert cli.run("start", "web") == 0
    assert cli.err.startswith("No changes to workload web")
    assert cli.out.startswith("workload/web unchanged\n")


def test_start_of_a_workload_that_was_rolled_back_is_no_failure(
    cli: CliRunner, world: World
) -> None:
    world.player = STOPPED
    assert cli.run("stop", "web") == 0

    async def roll_back(client: Client) -> None:
        workload = await client.get(WORKLOAD, Ref(NAMESPACE, "web"))
        rollout = {
            "templateHash": "a",
            "failedTemplateHash": template_hash(workload.spec.template),
            "failedRevision": 2,
            "runningRevision": 1,
        }
        await set_status(client, WORKLOAD, "web", {"rollout": rollout})

    world.do(roll_back)
    world.player = healthy
    assert cli.run("start", "web") == 0
    assert "stopped" not in spec(world)
    assert "web runs revision 1, which a rollback restored." in cli.err


def test_start_does_not_wait_for_a_suspended_project(cli: CliRunner, world: World) -> None:
    world.player = SUSPENDED
    assert cli.run("stop", "web") == 0
    assert cli.run("start", "web") == 0
    assert "stopped" not in spec(world)
    assert "web does not run: the project is suspended" in cli.err + cli.out
