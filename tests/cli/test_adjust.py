"""Small changes to a workload that exists, and following its rollout."""

from __future__ import annotations

from pathlib import Path

import pytest

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from tests.cli.surroundings import Desk
from tests.cli.world import World, image_missing, nobody, write_kubeconfig


@pytest.fixture
def desk(tmp_path: Path, world: World) -> Desk:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    desk = Desk(home=tmp_path, open_transport=world.open)
    assert desk.run("deploy", "web", "--image=web:1", "--city=DFW,ORD", "-y") == 0
    world.writes.clear()
    return desk


def spec(world: World) -> JsonObject:
    found: JsonObject = world.do(lambda c: c.get_plain(WORKLOAD, Ref("default", "web")))
    inner: JsonObject = found["spec"]
    return inner


def test_scale_changes_every_placement_and_waits(desk: Desk, world: World) -> None:
    assert desk.run("scale", "web", "--min=3") == 0
    assert spec(world)["placements"][0]["scaleSettings"]["minReplicas"] == 3
    assert desk.out == "workload/web updated\n"
    assert "placements[default].scaleSettings.minReplicas: 1 -> 3" in desk.err
    assert "web is ready: 6 instances in 2 cities" in desk.err


def test_scale_down_says_what_goes_and_asks_nobody(desk: Desk, world: World) -> None:
    desk.run("scale", "web", "--min=3")
    desk.is_terminal = True
    assert desk.run("scale", "web", "--min=1") == 0
    assert "This removes 2 of 3 instances in each city of default." in desk.err


def test_scale_to_what_is_there_writes_nothing(desk: Desk, world: World) -> None:
    assert desk.run("scale", "web", "--min=1") == 0
    assert world.writes == []
    assert desk.out == "workload/web unchanged\n"


def test_scale_names_a_placement(desk: Desk, world: World) -> None:
    assert desk.run("scale", "web", "--min=2", "--placement=europe") == 2
    assert "It has: default" in desk.err
    assert world.writes == []
    assert desk.run("scale", "web", "--min=2", "--placement=default") == 0


@pytest.mark.parametrize("minimum", ["0", "-1", "1001", "x"])
def test_scale_refuses_what_cannot_be(desk: Desk, world: World, minimum: str) -> None:
    assert desk.run("scale", "web", f"--min={minimum}") == 2
    assert world.writes == []


def test_restart_touches_one_annotation(desk: Desk, world: World) -> None:
    before = spec(world)
    assert desk.run("restart", "web") == 0
    after = spec(world)
    assert after["template"].pop("metadata")["annotations"].keys() == {RESTARTED_AT}
    assert after == before
    assert len(world.writes) == 1


def test_pause_and_resume(desk: Desk, world: World) -> None:
    assert desk.run("rollout", "pause", "web") == 0
    assert spec(world)["paused"] is True
    assert desk.err.endswith("it is resumed: datumctl compute rollout resume web\n")
    assert desk.run("rollout", "pause", "web") == 0
    assert desk.out == "workload/web unchanged\n"
    assert desk.run("rollout", "resume", "web") == 0
    assert "paused" not in spec(world)


def test_a_name_alone_means_its_status(desk: Desk, world: World) -> None:
    for words in (["rollout", "web"], ["rollout", "status", "web"]):
        assert desk.run(*words) == 0
        assert "web is ready: 2 instances in 2 cities" in desk.err
    assert world.writes == []


def test_a_rollout_that_does_not_end_says_why(desk: Desk, world: World) -> None:
    world.player = image_missing
    desk.run("deploy", "web", "--image=web:9", "-y", "--timeout=1s")
    assert desk.run("rollout", "web", "--timeout=1s") == 21
    assert "ImageUnavailable" in desk.err


def test_every_verb_guesses_which_workload_was_meant(desk: Desk, world: World) -> None:
    for words in (
        *(["scale", "wbe", "--min=2"], ["restart", "wbe"], ["rollout", "wbe"]),
        *(["rollout", "pause", "wbe"], ["rollout", "resume", "wbe"]),
    ):
        assert desk.run(*words) == 3
        assert "Did you mean 'web'?" in desk.err
    assert world.writes == []


def test_nobody_waits_when_told_so(desk: Desk, world: World) -> None:
    world.player = nobody
    assert desk.run("restart", "web", "--no-wait") == 0
    assert "See: datumctl compute rollout status web" in desk.err
