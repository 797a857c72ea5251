"""The context has the time of day as Kubernetes writes it, and state that is not shared."""

from __future__ import annotations

from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import NOW_S, a_context
from tests.runtime.planes_in_process import InProcessPlanes, with_planes


def test_now_is_the_time_of_day_in_utc() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> str:
        return a_context(loop, planes).now()

    assert NOW_S == 1_000_000.0
    assert with_planes(test) == "1970-01-12T13:46:40Z"


def test_the_state_of_a_process_is_not_that_of_another() -> None:
    """A new leader starts with empty state."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        before, after = a_context(loop, planes), a_context(loop, planes)
        before.state.unreachable_since_s["dfw"] = 1.0
        return bool(after.state.unreachable_since_s)

    assert not with_planes(test)
