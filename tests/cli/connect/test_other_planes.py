"""``explain`` with access to the hub and the cells."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.server import Server
from datum_compute.api.conditions import Condition
from datum_compute.api.http import Request
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLUSTER, INSTANCE, SERVER
from datum_compute.api.labels import CELL, CITY_CODE
from datum_compute.api.meta.codec import JsonObject, from_json, to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import HUB, PLATFORM, cell_plane
from datum_compute.cli.connect.other_planes import as_seen_from
from datum_compute.client.client import Client
from datum_compute.planning.explain.explain import explain_instance
from testkit.builders import an_instance
from tests.cli.objects import condition
from tests.cli.runner import NOW, CliRunner
from tests.cli.world import NAMESPACE, PLANE, World, image_missing, set_status, write_kubeconfig

DFW = cell_plane("dfw")
PLANES = (PLANE, HUB, DFW)
SINCE = timestamp(NOW - 40)


@pytest.fixture
def world() -> World:
    return World(player=image_missing, planes=(PLATFORM, *PLANES))


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig", "operator", PLANES)
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    cli.run("deploy", "web", "--image=web:9", "--city=DFW", "-y", "--timeout=0s")
    cli.run("rollout", "status", "web", "--timeout=1s")

    async def say_cell(client: Client) -> None:
        for found in (await client.list(INSTANCE, NAMESPACE)).items:
            patch = {"metadata": {"labels": {CELL: "dfw", CITY_CODE: "DFW"}}}
            await client.patch(INSTANCE, Ref(NAMESPACE, found.metadata.name), patch)

    world.do(say_cell)
    return cli


def the_instance(world: World) -> Instance:
    (found,) = world.do(lambda client: client.list(INSTANCE, NAMESPACE)).items
    assert isinstance(found, Instance)
    return found


def links(cli: CliRunner) -> list[JsonObject]:
    assert cli.run("explain", "web", "-o", "json") == 0
    found: list[JsonObject] = json.loads(cli.out)["links"]
    return found


def test_the_cause_on_the_cell_has_precedence(cli: CliRunner, world: World) -> None:
    copy = the_instance(world)
    name = copy.metadata.name

    async def create(client: Client) -> None:
        metadata = {"name": name, "namespace": "default", "labels": copy.metadata.labels}
        made = {"metadata": metadata, "spec": to_json(copy.spec), "status": to_json(copy.status)}
        await client.create(INSTANCE, from_json(made, Instance))
        await set_status(client, INSTANCE, name, to_json(copy.status))
        containers = to_json(copy.spec)["runtime"]["sandbox"]["containers"]
        spec = {"instanceType": "d1", "templateHash": "x", "containers": containers}
        machine = {"metadata": metadata, "spec": spec}
        await client.create(SERVER, from_json(machine, Server))
        value = {
            "phase": "Failed",
            "reason": "ImageUnavailable",
            "message": "registry returned 404",
        }
        await set_status(client, SERVER, name, value)

    world.do(create, DFW)
    found = links(cli)
    assert found[0]["plane"] == "project/default"
    assert (found[-1]["plane"], found[-1]["kind"]) == ("cell/dfw", "Server")
    assert found[-1]["message"] == "registry returned 404"
    assert cli.run("explain", "web") == 0
    assert "registry returned 404 [cell/dfw]" in cli.out


def test_the_hub_explains_an_unreachable_cell(cli: CliRunner, world: World) -> None:
    silent = condition(
        "Ready", "Unknown", "CellUnreachable", "Cell dfw does not respond", since=SINCE
    )
    name = the_instance(world).metadata.name
    world.do(lambda client: set_status(client, INSTANCE, name, {"conditions": [silent]}))

    async def create(client: Client) -> None:
        await client.create(CLUSTER, from_json({"metadata": {"name": "dfw"}, "spec": {}}, Cluster))
        value = condition("Ready", "False", "ClusterNotReachable", "connection refused")
        version = (await client.get(CLUSTER, Ref("", "dfw"))).metadata.resource_version
        status = {"conditions": [value]}
        await client.patch_status(CLUSTER, Ref("", "dfw"), status, version=version)

    world.do(create, HUB)
    asked: list[str] = []

    async def note(request: Request, _client: Client) -> None:
        asked.append(request.path)

    world.before = note
    last = links(cli)[-1]
    assert not [path for path in asked if path.endswith("/crashes")], "the cell would be waited for"
    assert (last["plane"], last["kind"], last["message"]) == (
        "hub",
        "Cluster",
        "connection refused",
    )
    file = cli.home / ".local/state/datum-compute/kubeconfig"
    assert last["command"] == f"kubectl --kubeconfig={file} --context=hub describe cluster dfw"
    assert json.loads(cli.out)["planAsOf"] == SINCE
    assert cli.run("explain", "web") == 0
    heading = "Plan (from the report of 40s ago; current state unknown):"
    assert heading in cli.out


def test_printed_commands_use_the_plane_of_the_cause() -> None:
    """Seen: the user was sent to look for a Secret in a namespace of the cell."""
    copy, there = an_instance(0), an_instance(0)
    metadata = msgspec.structs.replace(there.metadata, namespace="ns-1")
    there = msgspec.structs.replace(there, metadata=metadata)
    commands = {}
    for reason in ("SourceNotFound", "ProgrammingInProgress"):
        value = from_json(condition("Ready", "False", reason, "why"), Condition)
        status = msgspec.structs.replace(there.status, conditions=[value])
        cause = explain_instance(msgspec.structs.replace(there, status=status)).cause
        commands[reason] = as_seen_from(copy, DFW, cause).command
    name = copy.metadata.name
    assert commands == {
        "SourceNotFound": "kubectl get configmaps,secrets --namespace=default",
        "ProgrammingInProgress": "kubectl --context=cell/dfw get instance "
        f"{name} --namespace=ns-1 --watch",
    }


def test_without_access_to_other_planes_the_project_explains(
    cli: CliRunner, tmp_path: Path
) -> None:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    assert {link["plane"] for link in links(cli)} == {"project/default"}
