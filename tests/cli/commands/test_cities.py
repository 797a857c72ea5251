"""``cities``: availability of the cities of a project."""

from __future__ import annotations

import json

import pytest

from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import Client
from tests.cli.objects import binding
from tests.cli.runner import CliRunner, rows
from tests.cli.world import World, patch_status_of

pytestmark = pytest.mark.usefixtures("local_platform")


def test_cities_shows_availability(cli: CliRunner, world: World) -> None:
    async def two(client: Client) -> None:
        for city, status, reason in (("ZZZ", "False", "CellDrained"), ("AAA", "True", "Open")):
            await client.create(LOCATION_BINDING, binding(city))
            value = {"type": "Available", "status": status, "reason": reason, "message": "tested"}
            await patch_status_of(
                client, LOCATION_BINDING, Ref("", city.lower()), {"conditions": [value]}
            )

    world.do(two)
    assert cli.run("cities") == 0
    heading, first, *_, last = cli.out.splitlines()
    assert heading.split() == ["CITY", "STATUS", "MESSAGE"]
    assert first.split() == ["AAA", "Available", "-"]
    assert last.split(maxsplit=1) == ["ZZZ", "Unavailable (cell drained)   tested"]
    assert cli.run("cities", "-o", "name") == 0
    assert "city/AAA\n" in cli.out


def test_a_city_without_a_condition_is_unknown(cli: CliRunner, world: World) -> None:
    world.do(lambda client: client.create(LOCATION_BINDING, binding("ZZZ")))
    assert cli.run("cities", "-o", "wide") == 0
    assert rows(cli.out)[-1] == ["ZZZ", "Unknown", "-", "zzz"]
    assert cli.run("cities", "-o", "json") == 0
    document = json.loads(cli.out)["items"][-1]
    assert (document["city"], document["available"], document["reason"]) == ("ZZZ", "Unknown", "")
