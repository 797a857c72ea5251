"""Regressions: copies on cells and hub that no controller deleted. The simulator found them."""

from __future__ import annotations

import asyncio

from datum_compute.api import labels
from datum_compute.api.errors import ApiError
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.objects import ref_of
from testkit.sim.run.world import run_scenario
from testkit.sim.scenario.faults import EmptyHost
from testkit.sim.scenario.operations import CreateWorkload, Scale
from testkit.sim.scenario.scenario import Scenario, WorldLayout
from tests.regressions.platform import WEB, Platform, on_platform


def test_an_edited_work_annotation_is_restored_and_the_copy_is_deleted_with_its_workload() -> None:
    async def story(platform: Platform) -> str:
        await platform.deploy()
        await platform.until_ready("web:1")
        copy = await platform.deployment()
        edit = {"metadata": {"annotations": {labels.WORK_NAME: "junk"}}}
        await platform.cell.patch(DEPLOYMENT, ref_of(copy), edit)
        await asyncio.sleep(5)
        mended = (await platform.deployment()).metadata.annotations[labels.WORK_NAME]
        await platform.project.delete(WORKLOAD, WEB)
        await platform.until(lambda: _is_empty(platform), "the cell has nothing left")
        return mended

    assert on_platform(story).startswith("web-")


def test_a_copy_is_deleted_although_its_work_annotation_was_edited() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        copy = await platform.deployment()
        edit = {"metadata": {"annotations": {labels.WORK_NAME: "junk"}}}
        await asyncio.gather(
            platform.project.delete(WORKLOAD, WEB),
            platform.cell.patch(DEPLOYMENT, ref_of(copy), edit),
        )
        await platform.until(lambda: _is_empty(platform), "the cell has nothing left")
        return True

    assert on_platform(story)


def test_hub_copies_are_deleted_when_their_cell_restarts_empty() -> None:
    """The cell loses its store while the workload is scaled down."""
    outcome = run_scenario(
        Scenario(
            seed=1,
            layout=WorldLayout("split", ("alpha",), ("dfw",)),
            operations=(
                CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",)),
                Scale(5.5, "alpha", "web", 1),
            ),
            faults=(EmptyHost(5.4, "cell-dfw"),),
            chaos_s=10.0,
        )
    )
    instances = [line for line in outcome.final if "instances" in line and line.startswith("hub")]
    assert len(instances) == 1, outcome.final


async def _is_empty(platform: Platform) -> bool:
    try:
        copies = (await platform.cell.list(DEPLOYMENT)).items
        instances = (await platform.cell.list(INSTANCE)).items
    except ApiError:
        return False
    return not copies and not instances
