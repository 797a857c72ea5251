"""``quota``: usage, limits, and instances that wait."""

from __future__ import annotations

import pytest

from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.quota import MEMORY, WORKLOADS
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
