"""``rollout undo``: which revision and which part of it is restored."""

from __future__ import annotations

import asyncio
import json

import pytest

from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, WORKLOAD
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.cli.environment import CliTimeouts
from datum_compute.client.client import Client
from datum_compute.planning.workload.templates import template_hash
from tests.cli.runner import CliRunner
from tests.cli.world import (
    NAMESPACE,
    World,
    healthy_and_recorded,
    image,
    image_missing,
    no_controllers,
    recorder,
    replicas,
    set_status,
    spec,
)

pytestmark = pytest.mark.usefixtures("three_revisions")


def test_undo_restores_the_template_and_keeps_the_scale(cli: CliRunner, world: World) -> None:
    assert cli.run("rollout", "undo", "web", "--to-revision=1") == 0
    assert (image(world), replicas(world)) == ("web:1", 3)
    assert "To undo this: datumctl compute rollout undo web --to-revision=3" in cli.err
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "history", "web", "-o", "json") == 0
    newest = json.loads(cli.out)["items"][0]
    assert (newest["revision"], newest["restores"]) == (4, 1)
    # The scale is another one, so it is not all of revision 1.
    assert cli.run("rollout", "history", "web") == 0
    assert "rollback to the template of revision 1: image app: 2 -> 1" in cli.out
    assert cli.run("rollout", "diff", "web", "1") == 1
    assert cli.run("rollout", "undo", "web") == 0
    assert (image(world), replicas(world)) == ("web:2", 3)


@pytest.mark.parametrize(
    ("only", "after"),
    [("image", ("web:1", 3)), ("template", ("web:1", 3)), ("scale", ("web:2", 1))],
)
def test_undo_of_one_part_keeps_the_rest(
    cli: CliRunner, world: World, only: str, after: tuple[str, int]
) -> None:
    env = spec(world)["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"]
    assert cli.run("rollout", "undo", "web", "--to-revision=1", f"--only={only}") == 0
    assert (image(world), replicas(world)) == after
    now = spec(world)["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["env"]
    assert (now == env) == (only != "template")


def test_undo_after_a_scale_restores_the_last_other_template(cli: CliRunner, world: World) -> None:
    """Seen: "Restoring revision 2", which is the same template, and nothing changed."""
    assert cli.run("rollout", "undo", "web") == 0
    assert "Restoring revision 1." in cli.err
    assert (image(world), replicas(world)) == ("web:1", 3)


def test_undo_after_a_restart_restores_the_template_before_the_last_change(
    cli: CliRunner, world: World
) -> None:
    """Seen: the undo removed only the restart, and every instance was replaced again."""
    assert cli.run("restart", "web", "--no-wait") == 0
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "undo", "web") == 0
    assert "Restoring revision 1." in cli.err
    assert (image(world), replicas(world)) == ("web:1", 3)
    assert "metadata" not in spec(world)["template"]


def test_undo_to_the_current_revision_changes_nothing(cli: CliRunner, world: World) -> None:
    assert cli.run("rollout", "undo", "web", "--to-revision=3") == 0
    assert cli.err.startswith("Revision 3 is the current one.\nNo changes to workload web")
    assert world.writes == []


def test_undo_after_an_automatic_rollback_states_that_the_revision_runs_already(
    cli: CliRunner, world: World
) -> None:
    world.player = no_controllers
    assert cli.run("deploy", "web", "--image=web:9", "-y", "--no-wait") == 0

    async def roll_back(client: Client) -> None:
        workload = await client.get(WORKLOAD, Ref(NAMESPACE, "web"))
        failed = template_hash(workload.spec.template)
        rollout = {"templateHash": "a", "failedTemplateHash": failed, "runningRevision": 3}
        await set_status(client, WORKLOAD, "web", {"rollout": rollout})

    world.do(roll_back)
    assert cli.run("rollout", "undo", "web", "--to-revision=3", "--no-wait") == 0
    assert cli.err.startswith("Revision 3 runs already. Its template becomes that of web again.\n")
    assert image(world) == "web:2"


def test_undo_of_a_scale_requires_a_flag(cli: CliRunner, world: World) -> None:
    assert cli.run("rollout", "undo", "web", "--only=scale") == 0
    assert (image(world), replicas(world)) == ("web:2", 1)


def test_undo_without_a_template_change_is_an_error(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "api", "--image=a", "--city=DFW", "-y") == 0
    assert cli.run("scale", "api", "--min=2") == 0
    assert cli.run("rollout", "api") == 0
    world.writes.clear()
    assert cli.run("rollout", "undo", "api") == 2
    assert "differs in anything but restarts and the number of instances" in cli.err
    assert world.writes == []


def test_undo_to_the_current_revision_writes_nothing(cli: CliRunner, world: World) -> None:
    assert cli.run("rollout", "undo", "web", "--to-revision=3") == 0
    assert world.writes == []


def test_undo_without_an_earlier_revision_is_an_error(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "api", "--image=a", "--city=DFW", "-y") == 0
    assert cli.run("rollout", "api") == 0
    world.writes.clear()
    assert cli.run("rollout", "undo", "api") == 2
    assert "has only one revision" in cli.err
    assert cli.run("rollout", "undo", "web", "--to-revision=17") == 3
    assert world.writes == []


async def broken_and_recorded(client: Client) -> None:
    await asyncio.gather(image_missing(client), recorder(client))


def test_a_failed_release_suggests_an_undo_that_works(cli: CliRunner, world: World) -> None:
    world.player = broken_and_recorded
    cli.timeouts = CliTimeouts(user_cause_s=0)
    assert cli.run("deploy", "web", "-y", "--image=web:9") == 20
    hint = "Undo the change: datumctl compute rollout undo web"
    assert cli.err.splitlines()[-1] == hint
    world.player = healthy_and_recorded
    assert cli.run(*hint.partition("compute ")[2].split()) == 0
    assert image(world) == "web:2"


def test_a_revision_that_an_older_command_line_recorded_can_be_restored(
    cli: CliRunner, world: World
) -> None:
    old = json.loads(json.dumps(spec(world)).replace("web:2", "web:0"))
    entry = {"rev": 4, "timestamp": "2027-01-01T00:00:00Z", "image": "web:0", "changes": "first"}

    async def create(client: Client) -> None:
        name = "compute.datumapis.com-revision-history.web"
        data = {"4": json.dumps({**entry, "actor": "bo", "spec": json.dumps(old)}), "5": "broken"}
        metadata = ObjectMeta(name=name, namespace=NAMESPACE)
        await client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data=data))

    world.do(create)
    assert cli.run("rollout", "history", "web") == 0
    assert "legacy-4" in cli.out
    assert "broken" not in cli.out
    assert cli.run("rollout", "undo", "web", "--to-revision=legacy-4") == 0
    assert image(world) == "web:0"
    assert cli.run("rollout", "show", "web", "legacy-4", "-o", "json") == 0
    assert json.loads(cli.out)["actor"] == "bo"
    assert cli.run("rollout", "undo", "web", "--to-revision=nine") == 2
