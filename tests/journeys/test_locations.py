"""A LocationBinding reports whether its city is available now."""

from __future__ import annotations

from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.kinds import LOCATION, LOCATION_BINDING
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM
from tests.journeys.platform import CELL, Platform, on_platform

DFW = Ref("", "dfw")


async def available(platform: Platform) -> Condition:
    binding = await platform.project.get(LOCATION_BINDING, DFW)
    return find_condition(binding.status.conditions, "Available") or Condition(
        type="Available", status="Unknown", reason=""
    )


def test_a_city_is_not_available_while_its_cell_is_unreachable() -> None:
    """Regression: cities without a reachable cell were reported as available."""

    async def story(platform: Platform) -> str:
        await platform.wait_until_booted()

        async def is_open() -> bool:
            return (await available(platform)).status == "True"

        async def is_closed() -> bool:
            return (await available(platform)).status == "False"

        await platform.until(is_open, "the city is available")
        platform.host.silent.add(CELL)
        await platform.until(is_closed, "the city is not available")
        condition = await available(platform)
        location = await platform.host.operator(PLATFORM).get(LOCATION, DFW)
        ready = find_condition(location.status.conditions, "Ready")
        assert ready is not None
        assert ready.reason == "CellUnreachable"
        platform.host.silent.clear()
        await platform.until(is_open, "the city is available again")
        return condition.message

    assert "Cell dfw has not answered since" in on_platform(story, boot_s=0.0)
