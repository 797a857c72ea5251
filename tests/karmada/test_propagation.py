"""Propagation of a deployment to its cell and of its status back, on Karmada and embedded hub."""

from __future__ import annotations

import asyncio

from datum_compute.api import labels
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.errors import Conflict
from datum_compute.api.kinds import BINDING, CLUSTER, DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta.objects import Ref
from datum_compute.planning.federation.deployment import HubState, project_status_from_hub
from datum_compute.planning.karmada.bindings import binding_name
from datum_compute.planning.workload.templates import template_hash
from tests.karmada.conftest import Runs
from tests.karmada.federation import NOW, Federation, found, image_of

HELD = "example.com/held"


async def report(f: Federation, cell: str, generation: int, ready: int) -> None:
    """Write the status of a deployment as a cell does; Karmada may write at the same time."""
    while True:
        try:
            return await _report_once(f, cell, generation, ready)
        except Conflict:
            await asyncio.sleep(0.05)


async def _report_once(f: Federation, cell: str, generation: int, ready: int) -> None:
    copy = await f.cells[cell].get(DEPLOYMENT, f.ref())
    available = Condition(
        type="Available",
        status="True",
        reason="StableInstanceFound",
        message=f"{ready}/{ready} instances are ready",
        observed_generation=copy.metadata.generation,
        last_transition_time=NOW,
    )
    status = {
        "observedGeneration": copy.metadata.generation,
        "observedSource": {
            "generation": generation,
            "templateHash": template_hash(copy.spec.template),
        },
        "replicas": ready,
        "readyReplicas": ready,
        "desiredReplicas": ready,
        "conditions": [
            {
                "type": available.type,
                "status": available.status,
                "reason": available.reason,
                "message": available.message,
                "observedGeneration": available.observed_generation,
                "lastTransitionTime": NOW,
            }
        ],
    }
    version = copy.metadata.resource_version
    await f.cells[cell].patch_status(DEPLOYMENT, f.ref(), status, version=version)


async def until_hub_reports(f: Federation, ready: int) -> None:
    async def holds() -> bool:
        return (await f.hub.get(DEPLOYMENT, f.ref())).status.ready_replicas == ready

    await f.until(holds, f"the hub reports {ready} ready replicas")


def test_a_deployment_and_its_namespace_are_copied_only_to_the_cell_of_its_city(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        sent = await f.federate()
        await f.until_copied(f.near)
        copy = await f.cells[f.near].get(DEPLOYMENT, f.ref())
        stamps = copy.metadata.annotations
        assert stamps[labels.SOURCE_GENERATION] == "1"
        assert stamps[labels.SOURCE_TEMPLATE_HASH] == template_hash(sent.spec.template)
        assert copy.metadata.labels[labels.TOPOLOGY_CITY] == f.near.upper()
        assert copy.metadata.labels[labels.MANAGED] == "true"
        assert copy.metadata.finalizers == []
        assert copy.spec == sent.spec
        namespace = await f.cells[f.near].get(NAMESPACE, Ref("", f.hub_namespace))
        assert namespace.metadata.labels[labels.UPSTREAM_CLUSTER] == "cluster-story"
        assert namespace.metadata.labels[labels.UPSTREAM_NAMESPACE] == "default"
        assert await found(f.cells[f.far], NAMESPACE, Ref("", f.hub_namespace)) is None
        assert await f.copy(f.far) is None

    runs(story)


def test_the_status_of_the_cell_is_reported_for_its_observed_source_generation(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        deployment = await f.federate()
        await f.until_copied(f.near)
        await report(f, f.near, generation=1, ready=1)
        await until_hub_reports(f, 1)
        hub = await f.hub.get(DEPLOYMENT, f.ref())
        status = project_status_from_hub(deployment, HubState(None, hub, None), NOW)
        assert status.observed_generation == 1
        available = find_condition(status.conditions, "Available")
        assert available is not None
        assert available.reason == "StableInstanceFound"
        assert hub.status.observed_source.template_hash == template_hash(deployment.spec.template)

        newer = await f.federate(image="web:2", generation=2)
        await f.until_copied(f.near, "web:2")
        hub = await f.hub.get(DEPLOYMENT, f.ref())
        assert (
            project_status_from_hub(newer, HubState(None, hub, None), NOW).observed_generation == 1
        )
        await report(f, f.near, generation=2, ready=2)
        await until_hub_reports(f, 2)
        hub = await f.hub.get(DEPLOYMENT, f.ref())
        assert (
            project_status_from_hub(newer, HubState(None, hub, None), NOW).observed_generation == 2
        )

    runs(story)


def test_a_copy_changed_or_deleted_on_the_cell_is_restored(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        cell = f.cells[f.near]
        containers = [{"name": "app", "image": "drifted:1"}]
        drift = {"template": {"spec": {"runtime": {"sandbox": {"containers": containers}}}}}
        await cell.patch(DEPLOYMENT, f.ref(), {"spec": drift})
        await f.until_copied(f.near, "web:1")
        before = (await cell.get(DEPLOYMENT, f.ref())).metadata.uid
        await cell.delete(DEPLOYMENT, f.ref())

        async def is_new() -> bool:
            copy = await f.copy(f.near)
            return copy is not None and copy.metadata.uid != before

        await f.until(is_new, "the copy is recreated")

    runs(story)


def test_metadata_added_by_the_cell_stays_when_the_hub_changes(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        added = {
            "labels": {"example.com/rack": "r1"},
            "annotations": {"example.com/note": "of the cell"},
            "finalizers": [HELD],
        }
        await f.cells[f.near].patch(DEPLOYMENT, f.ref(), {"metadata": added})
        await f.federate(image="web:2", generation=2)
        await f.until_copied(f.near, "web:2")
        copy = await f.cells[f.near].get(DEPLOYMENT, f.ref())
        assert copy.metadata.labels["example.com/rack"] == "r1"
        assert copy.metadata.annotations["example.com/note"] == "of the cell"
        assert copy.metadata.annotations[labels.SOURCE_GENERATION] == "2"
        assert copy.metadata.finalizers == [HELD]
        await f.cells[f.near].patch(DEPLOYMENT, f.ref(), {"metadata": {"finalizers": []}})

    runs(story)


def test_a_copy_deleted_on_its_cell_is_reported_until_it_is_gone_and_recreated(
    runs: Runs,
) -> None:
    """Neither a terminating copy nor, by an old report, its successor may be shown as ready.

    Karmada keeps the old report on the object.
    """

    async def story(f: Federation) -> None:
        deployment = await f.federate()
        await f.until_copied(f.near)
        await report(f, f.near, generation=1, ready=3)
        await until_hub_reports(f, ready=3)
        cell = f.cells[f.near]
        await cell.patch(DEPLOYMENT, f.ref(), {"metadata": {"finalizers": [HELD]}})
        first = (await cell.get(DEPLOYMENT, f.ref())).metadata.uid
        await cell.delete(DEPLOYMENT, f.ref())
        await report(f, f.near, generation=1, ready=1)
        await until_hub_reports(f, ready=1)
        await cell.patch(DEPLOYMENT, f.ref(), {"metadata": {"finalizers": []}})

        async def is_another() -> bool:
            copy = await f.copy(f.near)
            return copy is not None and copy.metadata.uid != first

        await f.until(is_another, "the copy is recreated")

        async def is_waiting() -> bool:
            hub = await f.hub.get(DEPLOYMENT, f.ref())
            binding = await f.hub.get(BINDING, f.ref(binding_name(DEPLOYMENT, "web")))
            status = project_status_from_hub(deployment, HubState(None, hub, binding), NOW)
            available = find_condition(status.conditions, "Available")
            return available is not None and available.reason == "AwaitingPropagation"

        async def has_report() -> bool:
            return not await is_waiting()

        await f.until(is_waiting, "the project waits for a report of the new copy")
        await report(f, f.near, generation=1, ready=2)
        await until_hub_reports(f, ready=2)
        await f.until(has_report, "the project uses the report of the new copy")

    runs(story)


def test_template_and_binding_are_deleted_before_a_copy_with_a_finalizer(runs: Runs) -> None:
    """Karmada deletes the Work when the cell accepted the deletion, we when the copy is gone."""

    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        hold = {"metadata": {"finalizers": [HELD]}}
        await f.cells[f.near].patch(DEPLOYMENT, f.ref(), hold)
        await f.hub.delete(DEPLOYMENT, f.ref())

        async def is_deleted_on_hub() -> bool:
            copy = await f.copy(f.near)
            gone = await found(f.hub, DEPLOYMENT, f.ref()) is None and await f.binding() is None
            return gone and copy is not None and copy.is_terminating

        async def is_confirmed() -> bool:
            return not await f.works(f.near)

        await f.until(is_deleted_on_hub, "template and binding are gone")
        if f.is_karmada:
            await f.until(is_confirmed, "the Work is deleted when the cell responds")
        else:
            assert [work.is_terminating for work in await f.works(f.near)] == [True]
        await f.cells[f.near].patch(DEPLOYMENT, f.ref(), {"metadata": {"finalizers": []}})
        await f.until_gone(f.near)
        await f.until(is_confirmed, "the Work is gone")

    runs(story)


def test_a_template_with_a_finalizer_stays_on_its_cell(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        await f.hub.patch(DEPLOYMENT, f.ref(), {"metadata": {"finalizers": [HELD]}})
        await f.hub.delete(DEPLOYMENT, f.ref())

        async def is_untouched() -> bool:
            copy = await f.copy(f.near)
            return copy is not None and not copy.is_terminating

        await f.stays(is_untouched, "the cell keeps its copy")
        await f.hub.patch(DEPLOYMENT, f.ref(), {"metadata": {"finalizers": []}})
        await f.until_gone(f.near)

    runs(story)


def test_suspension_stops_updates_but_not_reports_and_deletions(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        policy = Ref(f.hub_namespace, f"city-{f.near}")
        await f.hub.patch(POLICY, policy, {"spec": {"suspension": {"dispatching": True}}})

        async def is_suspended() -> bool:
            (work,) = await f.works(f.near)
            held = find_condition(work.status.conditions, "Dispatching")
            return held is not None and held.reason == "SuspendDispatching"

        await f.until(is_suspended, "the Work is suspended")
        await f.federate(image="web:2", generation=2)
        await f.until(is_suspended, "the policy stays suspended")

        async def is_held() -> bool:
            copy = await f.copy(f.near)
            return copy is not None and image_of(copy) == "web:1"

        await f.stays(is_held, "the new image is held back")
        await report(f, f.near, generation=1, ready=1)
        await until_hub_reports(f, 1)
        # Trap 7: FullyApplied of Karmada does not depend on the generation.
        (applied,) = [
            c["status"] == "True"
            for c in (await f.binding() or {})["status"]["conditions"]
            if c["type"] == "FullyApplied"
        ]
        assert applied == f.is_karmada
        await f.hub.patch(POLICY, policy, {"spec": {"suspension": None}})
        await f.until_copied(f.near, "web:2")
        await f.hub.patch(POLICY, policy, {"spec": {"suspension": {"dispatching": True}}})
        await f.until(is_suspended, "suspended again")
        await f.hub.delete(DEPLOYMENT, f.ref())
        await f.until_gone(f.near)

    runs(story)


def test_one_object_can_be_suspended_in_its_binding(runs: Runs) -> None:
    """Karmada removes this suspension at the next change, because it is not in the policy."""

    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        binding = Ref(f.hub_namespace, binding_name(DEPLOYMENT, f.ref().name))
        await f.hub.patch(BINDING, binding, {"spec": {"suspension": {"dispatching": True}}})

        async def is_suspended() -> bool:
            (work,) = await f.works(f.near)
            return work.spec.suspend_dispatching is True

        await f.until(is_suspended, "the Work is held")
        await f.federate(image="web:2", generation=2)
        if not f.is_karmada:
            await f.stays(is_suspended, "the suspension stays")
            copy = await f.copy(f.near)
            assert copy is not None
            assert image_of(copy) == "web:1"
            await f.hub.patch(BINDING, binding, {"spec": {"suspension": None}})
        await f.until_copied(f.near, "web:2")

    runs(story)


def test_a_deployment_without_a_policy_stays_on_its_cell(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        await f.hub.delete(POLICY, Ref(f.hub_namespace, f"city-{f.near}"))

        async def policy_is_gone() -> bool:
            return await found(f.hub, POLICY, Ref(f.hub_namespace, f"city-{f.near}")) is None

        await f.until(policy_is_gone, "the policy is gone")

        async def is_there() -> bool:
            return await f.copy(f.near) is not None and await f.bound_to() == [f.near]

        await f.stays(is_there, "the copy stays")
        await f.hub.delete(DEPLOYMENT, f.ref())
        await f.until_gone(f.near)

    runs(story)


def test_two_cells_of_one_city_never_run_the_same_deployment(runs: Runs) -> None:
    """A placed deployment does not move to a second cell until its own cell leaves the city."""

    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        move = {"metadata": {"labels": {labels.TOPOLOGY_CITY: f.near.upper()}}}
        back = {"metadata": {"labels": {labels.TOPOLOGY_CITY: f.far.upper()}}}
        gone = {"metadata": {"labels": {labels.TOPOLOGY_CITY: "NOWHERE"}}}
        await f.hub.patch(CLUSTER, Ref("", f.far), move)
        try:

            async def is_not_doubled() -> bool:
                return await f.copy(f.far) is None and await f.bound_to() == [f.near]

            await f.stays(is_not_doubled, "one cell has the deployment")
            await f.federate(image="web:2", generation=2)
            await f.until_copied(f.near, "web:2")
            await f.stays(is_not_doubled, "still one")
            await f.hub.patch(CLUSTER, Ref("", f.near), gone)
            await f.until_copied(f.far, "web:2")
            await f.until_gone(f.near)
        finally:
            await f.hub.patch(CLUSTER, Ref("", f.near), move)
            await f.hub.patch(CLUSTER, Ref("", f.far), back)
            await f.hub.delete(DEPLOYMENT, f.ref())

    runs(story)


def test_an_unreachable_cell_keeps_its_objects_and_receives_missed_changes(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        await report(f, f.near, generation=1, ready=1)
        await until_hub_reports(f, 1)
        await f.federate("leaving")
        await f.until_copied(f.near, name="leaving")
        f.unreachable(f.near)
        try:
            await f.until_ready_is(f.near, "False")
            ready = await f.ready(f.near)
            assert ready is not None
            assert ready.reason == "ClusterNotReachable"
            assert await f.bound_to() == [f.near], "the deployment does not move"
            assert (await f.hub.get(DEPLOYMENT, f.ref())).status.ready_replicas == 1
            await f.federate(image="web:2", generation=2)
            await f.federate("coming")
            await f.hub.delete(DEPLOYMENT, f.ref("leaving"))

            async def only_the_tombstone_is_left() -> bool:
                works = await f.works(f.near, "leaving")
                gone = await f.binding("leaving") is None
                return gone and [work.is_terminating for work in works] == [True]

            await f.until(only_the_tombstone_is_left, "the tombstone records the removal")
        finally:
            f.heal(f.near)
        await f.until_ready_is(f.near, "True")
        await f.until_copied(f.near, "web:2")
        await f.until_copied(f.near, name="coming")
        await f.until_gone(f.near, "leaving")

        async def is_confirmed() -> bool:
            return not await f.works(f.near, "leaving")

        await f.until(is_confirmed, "the tombstone is deleted")

    runs(story)


def test_a_removed_cell_loses_its_objects(runs: Runs) -> None:
    async def story(f: Federation) -> None:
        await f.federate()
        await f.until_copied(f.near)
        await f.hub.delete(CLUSTER, Ref("", f.near))
        try:
            await f.until_gone(f.near)

            async def has_left() -> bool:
                return await found(f.hub, CLUSTER, Ref("", f.near)) is None

            await f.until(has_left, "the Cluster is deleted")
            assert not await f.works(f.near)
            assert await found(f.hub, DEPLOYMENT, f.ref()) is not None
        finally:
            f.join(f.near)
        await f.hub.delete(DEPLOYMENT, f.ref())

    runs(story)
