"""``quota``: usage, limits, and instances that wait."""

from __future__ import annotations

import json

import pytest

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.quota import MEMORY, METRICS, WORKLOADS, AllowanceBucket
from datum_compute.cli.commands.quota import bucket_order, render_amount, render_unit
from datum_compute.client.client import Client
from tests.cli.runner import CliRunner, deployed
from tests.cli.world import World, bucket, patch_status_of

pytestmark = pytest.mark.usefixtures("local_platform")


def test_quota_shows_use_and_limit_in_common_units(cli: CliRunner, world: World) -> None:
    async def both(client: Client) -> None:
        await bucket(client, MEMORY, 4096, 3072)
        await bucket(client, WORKLOADS, 2, 2)

    world.do(both)
    assert cli.run("quota") == 0
    assert cli.out.splitlines() == [
        "RESOURCE    UNIT   LIMIT   USED   AVAILABLE   USAGE",
        "workloads   -      2       2      0           [####################] 100%",
        "memory      GiB    4       3      1           [###############.....] 75%",
    ]
    assert cli.run("quota", "--constrained", "-o", "name") == 0
    assert cli.out == "quota/workloads\n"


def test_quota_names_waiting_instances(cli: CliRunner, world: World) -> None:
    deployed(cli, "DFW")

    async def deny(client: Client) -> None:
        listed = await client.list(INSTANCE, "default")
        ref = Ref("default", listed.items[0].metadata.name)
        value = {"type": "QuotaGranted", "status": "False", "reason": "QuotaExceeded"}
        await patch_status_of(
            client, INSTANCE, ref, {"conditions": [{**value, "message": "11 of 10"}]}
        )

    world.do(deny)
    assert cli.run("quota") == 0
    assert "in DFW waits for quota: 11 of 10" in cli.err


def test_a_city_shows_what_its_instances_use_and_how_many_wait(
    cli: CliRunner, world: World
) -> None:
    """An instance that does not exist yet waits like one to which quota was denied."""
    deployed(cli, "DFW", "ORD")

    async def scale(client: Client) -> None:
        for found in (await client.list(DEPLOYMENT, "default")).items:
            if found.spec.city_code == "ORD":
                wanted = {"spec": {"scaleSettings": {"minReplicas": 3}}}
                await client.patch(DEPLOYMENT, ref_of(found), wanted)

    world.do(scale)
    assert cli.run("quota") == 0
    assert [line.split() for line in cli.out.splitlines()[-3:]] == [
        ["CITY", "INSTANCES", "VCPUS", "MEMORY", "WAITING"],
        ["DFW", "1", "0.5", "1", "GiB", "0"],
        ["ORD", "1", "0.5", "1", "GiB", "2"],
    ]
    assert cli.run("quota", "--constrained") == 0
    assert [line.split()[0] for line in cli.out.splitlines()[-2:]] == ["CITY", "ORD"]
    assert cli.run("quota", "--city=dfw") == 0
    assert [line.split()[0] for line in cli.out.splitlines()[-2:]] == ["CITY", "DFW"]
    assert cli.run("quota", "--city=LHR") == 0
    assert "No instances in LHR." in cli.err
    assert cli.run("quota", "--constrained", "-o", "json") == 0
    (city,) = json.loads(cli.out)["cities"]
    assert (city["city"], city["granted"], city["waitingReplicas"]) == ("ORD", 1, 2)


def a_bucket(resource_type: str, limit: int = 10, used: int = 0) -> AllowanceBucket:
    return from_json(
        {
            "metadata": {"name": "a"},
            "spec": {
                "consumerRef": {"kind": "Project", "name": "a"},
                "resourceType": resource_type,
            },
            "status": {"limit": limit, "allocated": used, "available": limit - used},
        },
        AllowanceBucket,
    )


def test_resources_are_in_the_order_of_the_metrics_and_unknown_ones_last() -> None:
    types = [metric.resource_type for metric in METRICS]
    buckets = [a_bucket(type_) for type_ in ("x/b", "x/a", *reversed(types))]
    found = sorted(buckets, key=bucket_order)
    assert [b.spec.resource_type for b in found] == [*types, "x/a", "x/b"]


@pytest.mark.parametrize(
    ("resource_type", "amount", "shown", "unit"),
    [
        (MEMORY.resource_type, 4096, "4", " GiB"),
        (MEMORY.resource_type, 1536, "1.5", " GiB"),
        (MEMORY.resource_type, 1, "0.001", " GiB"),
        (WORKLOADS.resource_type, 100, "100", ""),
        ("example.com/gpus", 3, "3", ""),
    ],
)
def test_an_amount_is_shown_in_its_display_unit_exact_to_three_decimals(
    resource_type: str, amount: int, shown: str, unit: str
) -> None:
    found = a_bucket(resource_type)
    assert (render_amount(found, amount), render_unit(found)) == (shown, unit)


def test_a_project_without_buckets_is_reported(cli: CliRunner) -> None:
    assert cli.run("quota") == 0
    assert "No usage is recorded yet in project/default." in cli.err
