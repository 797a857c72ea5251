"""Unreachable cells do not delay other cells, and receive missed changes when they reconnect."""

from __future__ import annotations

import asyncio

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, POLICY, WORK
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import HUB
from testkit.sim.run.world import Outcome, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import (
    AllowFallback,
    ChangeImage,
    CreateWorkload,
    MoveBack,
    Operation,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout
from tests.journeys.platform import Platform, on_platform

TWO = WorldLayout("split", ("alpha",), ("dfw", "iad"))
MANY = 8


def first_s(outcome: Outcome, plane: str, *words: str, after_s: float = 0.0) -> float:
    """Return the time of the first trace line of the plane that contains all `words`."""
    for line in outcome.trace:
        at_s, _, rest = line.strip().partition(" ")
        here = rest.startswith(plane) and all(word in rest for word in words)
        if here and float(at_s) >= after_s:
            return float(at_s)
    raise AssertionError(f"never: {plane} {words}")


def test_an_unreachable_cell_does_not_delay_another_one() -> None:
    """Many changes are pending for that cell when a workload for the other one is created."""
    dead: list[Operation] = []
    for number in range(MANY):
        name = f"w{number}"
        dead += [
            CreateWorkload(0.0, "alpha", name, f"{name}:1", 1, ("DFW",)),
            ChangeImage(6.0, "alpha", name, f"{name}:2"),
        ]
    living = CreateWorkload(8.0, "alpha", "live", "live:1", 1, ("IAD",))
    cut = (f.IsolateHost(5.0, 60.0, "cell-dfw"),)
    outcome = run_scenario(Scenario(1, TWO, (*dead, living), cut, 70.0))
    ready_s = first_s(outcome, "project/alpha", INSTANCE.resource, "live-", "Ready=True")
    assert ready_s < 10.0, "as fast as if all cells were there"


def test_a_reconnected_cell_soon_receives_missed_changes_after_a_long_outage() -> None:
    change = ChangeImage(6.0, "alpha", "web", "web:2")
    create = CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",))
    back_s = 1800.0
    cut = (f.IsolateHost(5.0, back_s - 5.0, "cell-dfw"),)
    outcome = run_scenario(Scenario(1, TWO, (create, change), cut, back_s + 10.0))
    seen_s = first_s(outcome, "cell/dfw", DEPLOYMENT.resource, after_s=back_s - 0.5)
    assert seen_s < back_s + 45.0, "no delay grows with the length of the outage"


def test_a_suspended_policy_holds_new_versions_until_it_is_resumed() -> None:
    async def story(platform: Platform) -> tuple[str, str]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (policy,) = (await hub.list(POLICY)).items
        suspend = {"spec": {"suspension": {"dispatching": True}}}
        await hub.patch(POLICY, ref_of(policy), suspend)
        await asyncio.sleep(1)
        await platform.change_image("web:2")
        await asyncio.sleep(60)
        (held,) = await platform.instances()
        works = [w for w in (await hub.list(WORK)).items if w.metadata.name.startswith("web-")]
        reasons = [c.reason for w in works for c in w.status.conditions if c.type == "Dispatching"]
        await hub.patch(POLICY, ref_of(policy), {"spec": {"suspension": None}})
        await platform.until_ready("web:2")
        return held.spec.runtime.sandbox.containers[0].image, reasons[0]

    assert on_platform(story) == ("web:1", "SuspendDispatching")


def test_an_isolated_cell_is_unreachable_a_grace_period_after_its_last_response() -> None:
    """Regression: it took 70 s because of the timeout of the transport."""
    create = CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",))
    cut = (f.IsolateHost(5.0, 90.0, "cell-dfw"),)
    outcome = run_scenario(Scenario(1, TWO, (create,), cut, 100.0))
    reported_s = first_s(outcome, "project/alpha", DEPLOYMENT.resource, "CellUnreachable")
    assert 20.0 <= reported_s - 5.0 <= 32.0, "the last response is up to one probe before the cut"


def test_a_failed_city_is_replaced_until_a_move_back_is_requested() -> None:
    operations: tuple[Operation, ...] = (
        CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",)),
        AllowFallback(1.0, "alpha", "web", ("IAD",), 30),
        MoveBack(220.0, "alpha", "web"),
    )
    cut = (f.IsolateHost(5.0, 145.0, "cell-dfw"),)
    outcome = run_scenario(Scenario(1, TWO, operations, cut, 230.0))
    moved_s = first_s(outcome, "cell/iad", INSTANCE.resource, "Ready=True")
    assert 55.0 < moved_s < 70.0
    gone_s = first_s(outcome, "cell/dfw", INSTANCE.resource, "deleted")
    assert 150.0 < gone_s < 220.0, "the share has moved: what is still there goes"
    back_s = first_s(outcome, "cell/dfw", INSTANCE.resource, "Ready=True", after_s=gone_s)
    assert back_s > 220.0, "nothing moves back by itself"
    assert not [line for line in outcome.final if "FallbackEngaged" in line]
