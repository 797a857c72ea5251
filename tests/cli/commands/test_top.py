"""``instances top``: usage of each instance, read from the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

import pytest

from datum_compute.api.errors import to_status
from datum_compute.api.gateway import GatewayReason, gateway_not_found
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.labels import CITY_CODE
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import CONCURRENT_REQUESTS_MAX
from tests.cli.runner import CliRunner, deployed, rows
from tests.cli.world import NAMESPACE, World

pytestmark = pytest.mark.usefixtures("local_platform")

BUSY = {"cpuMillicores": 900, "memoryMebibytes": 64, "memoryLimitMebibytes": 2048}
IDLE = {"cpuMillicores": 3, "memoryMebibytes": 32, "memoryLimitMebibytes": 1024}


def answer_usage(world: World, usage_by_city: Mapping[str, JsonObject]) -> None:
    """Respond with the usage of the instance in each city; other instances do not run."""
    missing = gateway_not_found(GatewayReason.INSTANCE_NOT_RUNNING)
    instances = world.do(lambda client: client.list(INSTANCE, NAMESPACE)).items
    cities = {found.metadata.name: found.metadata.labels[CITY_CODE] for found in instances}

    def answer(request: Request) -> Response | None:
        if not request.path.endswith("/usage"):
            return None
        usage = usage_by_city.get(cities[request.path.split("/")[-2]])
        if usage is not None:
            return Response(200, encode(usage))
        return Response(missing.code, encode(to_status(missing)))

    world.gateway = answer


def test_the_instance_with_the_highest_cpu_usage_comes_first(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW", "ORD")
    answer_usage(world, {"DFW": IDLE, "ORD": BUSY})
    assert cli.run("instances", "top") == 0
    heading, first, second = rows(cli.out)
    assert heading == ["NAME", "CITY", "CPU", "MEMORY", "LIMIT"]
    assert first[1:] == ["ORD", "900m", "64Mi", "2048Mi"]
    assert second[1:] == ["DFW", "3m", "32Mi", "1024Mi"]


def test_an_instance_that_sleeps_or_does_not_run_is_shown_without_cpu_usage(
    cli: CliRunner, world: World
) -> None:
    deployed(cli, "DFW", "ORD")
    answer_usage(world, {"DFW": {**IDLE, "asleep": True}})
    assert cli.run("instances", "top") == 0
    assert sorted(line[1:] for line in rows(cli.out)[1:]) == [
        ["DFW", "asleep", "32Mi", "1024Mi"],
        ["ORD", "-", "-", "-"],
    ]
    assert cli.run("instances", "top", "-o", "json") == 0
    items = {item["city"]: item for item in json.loads(cli.out)["items"]}
    assert (items["DFW"]["asleep"], items["ORD"]["asleep"]) == (True, False)
    assert items["ORD"]["cpuMillicores"] is None


def test_few_instances_are_read_at_the_same_time(cli: CliRunner, world: World) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "--min=20", "-y") == 0
    answer_usage(world, {"DFW": IDLE})
    pending, most = 0, 0

    async def begin(request: Request, _client: Client) -> None:
        nonlocal pending, most
        pending += request.path.endswith("/usage")
        most = max(most, pending)
        await asyncio.sleep(0)

    async def end(request: Request) -> None:
        nonlocal pending
        pending -= request.path.endswith("/usage")

    world.before, world.after = begin, end
    assert cli.run("instances", "top") == 0
    assert len(rows(cli.out)) == 21
    assert 1 < most <= CONCURRENT_REQUESTS_MAX


def test_a_platform_without_metrics_is_an_error(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")
    world.gateway = lambda _request: None
    assert cli.run("instances", "top") == 1
    assert "does not support metrics" in cli.err
