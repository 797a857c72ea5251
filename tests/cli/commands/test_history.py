"""``rollout history``, ``show``, ``diff`` and ``undo``, with the controller that records them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.kinds import REVISION, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.environment import CliTimeouts
from datum_compute.client.client import Client
from datum_compute.planning.plan import Create
from datum_compute.planning.workload.revisions import plan_revisions
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, PLANE, World, healthy, image_missing, write_kubeconfig


async def recorder(client: Client) -> None:
    """What the revision controller does, at every change."""
    async for event in client.watch(WORKLOAD, "", namespace=NAMESPACE, timeout_s=600):
        if event.object is None or event.type not in ("ADDED", "MODIFIED"):
            continue
        known = (await client.list(REVISION, NAMESPACE)).items
        for action in plan_revisions(PLANE, event.object, known).actions:
            assert isinstance(action, Create)
            assert isinstance(action.object, WorkloadRevision)
            await client.create(REVISION, action.object)


async def healthy_and_recorded(client: Client) -> None:
    await asyncio.gather(healthy(client), recorder(client))


@pytest.fixture
def world() -> World:
    return World(player=healthy_and_recorded)


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    deploy = ("deploy", "web", "-y")
    assert cli.run(*deploy, "--image=web:1", "--city=DFW", "--env=KEY=hunter2") == 0
    assert cli.run(*deploy, "--image=web:2", "--env=KEY=hunter3") == 0
    assert cli.run("scale", "web", "--min=3") == 0
    assert cli.run("rollout", "web") == 0  # the recorder has seen it all
    world.writes.clear()
    return cli


def spec(world: World) -> JsonObject:
    found: JsonObject = world.do(lambda c: c.get_plain(WORKLOAD, Ref("default", "web")))
    inner: JsonObject = found["spec"]
    return inner


def image(world: World) -> str:
    found: str = spec(world)["template"]["spec"]["runtime"]["sandbox"]["containers"][0]["image"]
    return found


def replicas(world: World) -> int:
    found: int = spec(world)["placements"][0]["scaleSettings"]["minReplicas"]
    return found


def test_history_lists_changes_newest_first(cli: CliRunner) -> None:
    assert cli.run("rollout", "history", "web") == 0
    heading, newest, middle, first = cli.out.splitlines()
    assert heading.split() == ["REV", "WHEN", "IMAGE", "CHANGES", "BY", "STATUS"]
    assert newest.split()[:3] == ["3", "5m", "web:2"]
    assert "placements[default].scaleSettings.minReplicas: 1 -> 3" in newest
    assert newest.endswith("active")
    assert "containers[app].env[KEY]: changed (+1)" in middle
    assert first.split() == ["1", "5m", "web:1", "first", "ada", "-"]
    assert "hunter" not in cli.out


def test_history_as_json(cli: CliRunner) -> None:
    assert cli.run("rollout", "history", "web", "-o", "json") == 0
    items = json.loads(cli.out)["items"]
    assert [(item["revision"], item["active"]) for item in items] == [
        (3, True),
        (2, False),
        (1, False),
    ]


def test_one_revision_is_shown_completely(cli: CliRunner) -> None:
    assert cli.run("rollout", "show", "web", "1") == 0
    shown = yaml.safe_load(cli.out)
    containers = shown["template"]["spec"]["runtime"]["sandbox"]["containers"]
    assert containers[0]["image"] == "web:1"
    assert cli.run("rollout", "show", "web", "9") == 3
    assert "datumctl compute rollout history web" in cli.err


def test_a_difference_exits_with_one_and_hides_values(cli: CliRunner) -> None:
    assert cli.run("rollout", "diff", "web", "1", "2") == 1
    assert cli.out.splitlines() == [
        "containers[app].env[KEY]: changed",
        "containers[app].image: web:1 -> web:2",
    ]
    assert cli.run("rollout", "diff", "web", "3") == 0
    assert (cli.out, cli.err) == ("", "No difference.\n")


def test_a_full_restore_of_a_revision_is_recorded_in_history(cli: CliRunner) -> None:
    assert cli.run("scale", "web", "--min=1") == 0
    assert cli.run("rollout", "undo", "web", "--to-revision=1", "-y") == 0
    assert cli.run("rollout", "web") == 0
    assert cli.run("rollout", "history", "web") == 0
    assert "back to revision 1" in cli.out
    assert cli.run("rollout", "diff", "web", "1") == 0


def test_diff_without_revisions_shows_the_last_change(cli: CliRunner) -> None:
    assert cli.run("rollout", "diff", "web") == 1
    assert cli.out.splitlines() == ["placements[default].scaleSettings.minReplicas: 1 -> 3"]


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
    assert "back to the template of revision 1" in cli.out
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


def test_undo_of_a_scale_requires_a_flag(cli: CliRunner, world: World) -> None:
    assert cli.run("rollout", "undo", "web", "--only=scale") == 0
    assert (image(world), replicas(world)) == ("web:2", 1)


def test_undo_without_a_template_change_is_an_error(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "api", "--image=a", "--city=DFW", "-y") == 0
    assert cli.run("scale", "api", "--min=2") == 0
    assert cli.run("rollout", "api") == 0
    world.writes.clear()
    assert cli.run("rollout", "undo", "api") == 2
    assert "differs in anything but the number of instances" in cli.err
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
