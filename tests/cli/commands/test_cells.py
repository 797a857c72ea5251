"""``cell list``; drained and missing cells in ``doctor`` and ``local status``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from datum_compute.api.karmada import Cluster, ClusterStatus
from datum_compute.api.kinds import CLUSTER, INSTANCE, LOCATION_BINDING
from datum_compute.api.labels import CELL
from datum_compute.api.meta.codec import JsonObject, from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PLATFORM
from datum_compute.cli.local.status import ANSWERS, SILENT, UNKNOWN, _cell_health
from datum_compute.cli.render.documents import LISTS
from datum_compute.client.client import Client
from tests.cli.objects import binding, condition
from tests.cli.runner import CliRunner
from tests.cli.world import PLANE, World, ensure, patch_status_of, write_kubeconfig

PLANES = (PLANE, HUB)


@pytest.fixture
def world() -> World:
    return World(planes=(PLATFORM, *PLANES))


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "operator", PLANES)
    return CliRunner(home=tmp_path, open_transport=world.open)


def test_cells_are_listed_with_their_instances_on_the_hub(cli: CliRunner, world: World) -> None:
    async def three_in_dfw(client: Client) -> None:
        for name in ("dfw", "lhr"):
            await client.create(
                CLUSTER, from_json({"metadata": {"name": name}, "spec": {}}, Cluster)
            )
        template = {"runtime": {"sandbox": {"containers": [{"name": "a", "image": "b"}]}}}
        for number in range(3):
            await ensure(client, INSTANCE, f"web-{number}", {CELL: "dfw"}, template)

    world.do(three_in_dfw, HUB)
    assert cli.run("cell", "list", "-o", "json") == 0, cli.err
    fields = LISTS["cell list"].__struct_encode_fields__
    assert list(json.loads(cli.out)["items"][0]) == list(fields)
    counts = {cell["name"]: cell["instances"] for cell in json.loads(cli.out)["items"]}
    assert counts == {"dfw": 3, "lhr": 0}
    assert cli.run("cell", "list") == 0
    counts = {line.split()[0]: line.split()[3] for line in cli.out.splitlines()[1:]}
    assert counts == {"dfw": "3", "lhr": "0"}


@pytest.mark.parametrize(
    ("reason", "state", "text"),
    [
        ("CellDrained", "ok", "drained: ZZZ"),
        ("CellUnreachable", "warning", "not available: ZZZ"),
    ],
)
def test_a_drained_city_is_no_problem(
    cli: CliRunner, world: World, reason: str, state: str, text: str
) -> None:
    async def close(client: Client) -> None:
        await client.create(LOCATION_BINDING, binding("ZZZ"))
        status: JsonObject = {"conditions": [condition("Available", "False", reason, "tested")]}
        await patch_status_of(client, LOCATION_BINDING, Ref("", "zzz"), status)

    world.do(close)
    cli.run("doctor", "-o", "json")
    (found,) = [f for f in json.loads(cli.out)["items"] if f["check"] == "cities"]
    assert found["state"] == state
    assert text in found["text"]


@pytest.mark.parametrize(
    ("ready", "stuck", "is_cut", "health"),
    [
        ("True", "", False, ANSWERS),
        ("True", "its process does not run", False, SILENT),
        ("True", "", True, SILENT),
        ("False", "its process does not run", False, SILENT),
        ("", "", False, UNKNOWN),
    ],
)
def test_a_cell_without_a_process_is_shown_as_not_responding(
    ready: str, stuck: str, is_cut: bool, health: str
) -> None:
    conditions = [condition("Ready", ready, "Tested", "")] if ready else []
    status = from_json({"conditions": conditions}, ClusterStatus)
    assert _cell_health(Cluster(status=status), stuck, is_cut=is_cut)[0] == health


def test_cell_leave_exits_21_when_the_cell_is_not_removed_in_time(
    cli: CliRunner, world: World
) -> None:
    async def create_held(client: Client) -> None:
        metadata = {"name": "dfw", "finalizers": ["example.com/held"]}
        spec = {"apiEndpoint": "https://dfw.example:8443"}
        await client.create(CLUSTER, from_json({"metadata": metadata, "spec": spec}, Cluster))

    world.do(create_held, HUB)
    assert cli.run("cell", "leave", "dfw", "-y", "--timeout=0s") == 21
    assert cli.err.splitlines() == [
        "error: cell dfw is not removed after 0s",
        "The removal continues. Wait for it again: datumctl compute cell leave dfw -y",
    ]
    assert cli.run("cell", "leave", "dfw", "-y", "--no-wait") == 0
    assert cli.out == "Cell dfw is being removed.\n"
