"""Projections: copies of instances in a project, owned by and deleted with its deployment."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import HUB, project_plane
from testkit.sim.run.world import run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import CreateWorkload, DeleteWorkload, EditObject
from testkit.sim.scenario.scenario import Scenario, WorldLayout
from tests.journeys.platform import WEB, Platform, on_platform
from tests.journeys.test_partition import first_s

SPLIT = WorldLayout("split", ("alpha",), ("dfw",))


def test_a_projection_is_owned_by_and_deleted_with_the_projects_deployment() -> None:
    async def story(platform: Platform) -> tuple[list[str], str, str, int]:
        await platform.deploy()
        await platform.until_ready("web:1")
        (projection,) = (await platform.project.list(INSTANCE)).items
        (deployment,) = (await platform.project.list(DEPLOYMENT)).items
        owners = [o.uid for o in projection.metadata.owner_references]
        edge = (await platform.deployment()).metadata.uid
        await platform.project.delete(WORKLOAD, WEB)

        async def gone() -> bool:
            return not (await platform.project.list(INSTANCE)).items

        await platform.until(gone, "the projection is gone")
        left = len((await platform.project.list(DEPLOYMENT)).items)
        return owners, deployment.metadata.uid, edge, left

    owners, project_uid, edge_uid, _ = on_platform(story)
    assert owners == [project_uid]
    assert project_uid != edge_uid


def test_a_copy_without_its_label_is_mapped_by_its_name_and_a_lost_owner_is_restored() -> None:
    async def story(platform: Platform) -> tuple[list[str], list[str], str]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        given = dict(copy.metadata.labels)
        name = given.pop(labels.DEPLOYMENT_NAME)
        given.pop(labels.CELL)
        body: JsonObject = {
            "apiVersion": INSTANCE.api_version,
            "kind": INSTANCE.kind,
            "metadata": {
                "name": f"{name}-7",
                "namespace": copy.metadata.namespace,
                "labels": given,
            },
            "spec": to_json(copy.spec),
        }
        await hub.create_plain(INSTANCE, body)
        await asyncio.sleep(1)
        operator = platform.host.operator(project_plane("default"))
        seventh = Ref("default", f"{name}-7")
        found = await operator.get(INSTANCE, seventh)
        owners = [o.uid for o in found.metadata.owner_references]
        await operator.patch(INSTANCE, seventh, {"metadata": {"ownerReferences": None}})
        await asyncio.sleep(1)
        healed = await operator.get(INSTANCE, seventh)
        (deployment,) = (await platform.project.list(DEPLOYMENT)).items
        again = [o.uid for o in healed.metadata.owner_references]
        return owners, again, deployment.metadata.uid

    owners, again, uid = on_platform(story)
    assert owners == again == [uid]


def test_a_hub_status_is_copied_to_the_project_by_its_event_and_not_by_a_resync() -> None:
    create = CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",))
    outcome = run_scenario(Scenario(1, SPLIT, (create,), (), 3.0))
    hub_s = first_s(outcome, "hub", DEPLOYMENT.resource, "Available=True")
    project_s = first_s(outcome, "project/alpha", DEPLOYMENT.resource, "Available=True")
    assert project_s - hub_s < 0.1


def test_project_and_hub_are_cleaned_up_after_a_cell_is_lost() -> None:
    """The simulator checks that only the tombstones of the lost cell remain."""
    operations = (
        CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",)),
        DeleteWorkload(6.0, "alpha", "web"),
    )
    lost = (f.StopHost(5.0, f.FOR_EVER, "cell-dfw"),)
    outcome = run_scenario(Scenario(1, SPLIT, operations, lost, 60.0))
    gone_s = first_s(outcome, "project/alpha", WORKLOAD.resource, "deleted")
    assert gone_s < 60.0
    assert not [line for line in outcome.final if INSTANCE.resource in line]


@pytest.mark.parametrize(
    ("pick", "label"),
    [(0, labels.CELL), (4, labels.DEPLOYMENT_NAME), (8, labels.UPSTREAM_CLUSTER)],
)
def test_an_edited_copy_of_a_lost_cell_does_not_stay_ready(pick: int, label: str) -> None:
    """The lost cell cannot restore its copy. The simulator checks the status in the project."""
    create = CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",))
    edit = EditObject(5.4, HUB, INSTANCE.resource, "label", pick)
    lost = (f.StopHost(3.75, f.FOR_EVER, "cell-dfw"),)
    outcome = run_scenario(Scenario(1, SPLIT, (create, edit), lost, 7.0))
    assert any(f"'{label}': 'junk'" in line for line in outcome.trace), "else another label was"


def test_a_deleted_copy_is_recreated_only_while_its_deployment_is_on_the_hub() -> None:
    async def story(platform: Platform) -> tuple[int, int]:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)
        (copy,) = (await hub.list(INSTANCE)).items
        await hub.delete(INSTANCE, ref_of(copy))
        await asyncio.sleep(2)
        back = len((await hub.list(INSTANCE)).items)
        await platform.project.delete(WORKLOAD, WEB)
        await asyncio.sleep(100)
        return back, len((await hub.list(INSTANCE)).items)

    assert on_platform(story) == (1, 0)
