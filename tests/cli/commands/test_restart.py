"""``restart`` of all cities and of one."""

from __future__ import annotations

import pytest

from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.commands.restart import restart_city
from datum_compute.cli.errors import UsageError
from tests.cli.objects import workload_spec
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World, stored

WEB = Ref(NAMESPACE, "web")


FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_a_restart_of_one_city_is_an_annotation_of_the_workload(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    assert cli.run("restart", "web", "--city=dfw") == 0
    (kept,) = stored(world)["spec"]["restarts"]
    assert kept["cityCode"] == "DFW"
    assert "Replacing every instance of web in DFW." in cli.err
    assert "restarts[" not in cli.err
    assert "metadata" not in stored(world)["spec"]["template"]
    assert cli.run("restart", "web", "--city=ORD") == 0
    assert [r["cityCode"] for r in stored(world)["spec"]["restarts"]] == ["DFW", "ORD"]
    assert cli.run("deploy", "web", "--city=ORD", "-y") == 0
    assert cli.run("restart", "web", "--city=ORD") == 0
    assert cli.run("restart", "web", "--city=DFW") == 2
    assert "It runs in: ORD" in cli.err
    assert cli.run("restart", "web") == 0
    assert RESTARTED_AT in stored(world)["spec"]["template"]["metadata"]["annotations"]


def test_restart_changes_one_annotation(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    before = stored(world)["spec"]
    world.writes.clear()
    assert cli.run("restart", "web") == 0
    after = stored(world)["spec"]
    assert after["template"].pop("metadata")["annotations"].keys() == {RESTARTED_AT}
    assert after == before
    assert len(world.writes) == 1
    assert cli.err.startswith("Replacing every instance of web.\n")


def restarted(spec: JsonObject, city: str) -> list[str]:
    """Restart a city of the workload. Return the cities of the recorded restarts."""
    workload: JsonObject = {"metadata": {"name": "web"}, "spec": spec}
    restart_city(workload, city, "2027-01-02T00:00:00Z")
    return [entry["cityCode"] for entry in workload["spec"]["restarts"]]


def test_a_restart_replaces_the_entry_of_its_city_and_drops_those_of_removed_cities() -> None:
    earlier = "2027-01-01T00:00:00Z"
    spec = {
        **workload_spec("dfw", "ORD"),
        "restarts": [{"cityCode": city, "at": earlier} for city in ("DFW", "LHR", "ORD")],
    }
    assert restarted(spec, "DFW") == ["ORD", "DFW"]


def test_a_restart_of_another_city_suggests_a_similar_one() -> None:
    with pytest.raises(UsageError) as raised:
        restarted(workload_spec("DFW", "ORD"), "DFX")
    assert raised.value.hint == "Did you mean DFW? It runs in: DFW, ORD"
