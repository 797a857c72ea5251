"""Events for users: each transition is reported once, normal progress is not."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import (
    Instance,
    InstanceControl,
    InstanceSpec,
    InstanceStatus,
)
from datum_compute.api.compute.workload import CityRollout, CityRolloutState, WorkloadRollout
from datum_compute.api.conditions import Condition
from datum_compute.api.events import Event
from datum_compute.api.kinds import DEPLOYMENT, EVENT, INSTANCE, WORKLOAD
from datum_compute.api.meta.objects import ObjectMeta, OwnerReference, Ref
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.controllers.events import user_events
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.runtime.event_recorder import EventRequest
from datum_compute.server.access.audit import AuditEvent
from testkit.builders import a_new_workload, a_template, a_workload
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.app.test_manager_role import CELL, PROJECT, SETTLE_S, a_platform

DFW = cell_plane("dfw")
OWNER = OwnerReference(
    api_version="compute.datumapis.com/v1alpha",
    kind="WorkloadDeployment",
    name="web",
    uid="u-owner",
    controller=True,
)
REF = Ref("default", "web-0")


def an_instance(status: str, reason: str, *, terminating: bool = False) -> Instance:
    ready = Condition(type="Ready", status=status, reason=reason)  # type: ignore[arg-type]
    return Instance(
        metadata=ObjectMeta(
            name=REF.name,
            namespace=REF.namespace,
            uid="u-1",
            owner_references=[OWNER],
            finalizers=["ours"],
            deletion_timestamp="2026-01-01T00:00:00Z" if terminating else None,
        ),
        spec=InstanceSpec(runtime=a_template().spec.runtime),
        status=InstanceStatus(conditions=[ready]),
    )


def events_of(before: Instance, status: str, reason: str, plane: PlaneName = DFW) -> list[str]:
    ready = {"type": "Ready", "status": status, "reason": reason, "message": "why"}
    action = PatchStatus(plane, INSTANCE, REF, "1", {"conditions": [ready]}, "report")
    return [f"{n.type} {n.reason}: {n.message}" for n in user_events(action, before)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (("False", "Starting"), ("True", "Available"), ["Normal Available: why"]),
        (("True", "Available"), ("True", "Available"), []),
        (("False", "Pending"), ("False", "Starting"), []),
        (("True", "Available"), ("False", "Starting"), ["Warning Starting: why"]),
        (("False", "Pending"), ("False", "QuotaNotGranted"), ["Warning QuotaNotGranted: why"]),
        (("False", "ImageUnavailable"), ("False", "ImageUnavailable"), []),
        (("True", "Available"), ("Unknown", "CellUnreachable"), ["Warning CellUnreachable: why"]),
    ],
)
def test_only_transitions_are_reported(
    before: tuple[str, str], after: tuple[str, str], expected: list[str]
) -> None:
    assert events_of(an_instance(*before), *after) == expected


def test_a_stop_is_a_warning_only_if_no_user_requested_it() -> None:
    ended = an_instance("True", "Available")
    assert events_of(ended, "False", "Stopped") == ["Warning Stopped: why"]
    stopped = msgspec.structs.replace(
        ended, spec=msgspec.structs.replace(ended.spec, controller=InstanceControl(stopped=True))
    )
    assert events_of(stopped, "False", "Stopped") == ["Normal Stopped: why"]
    assert events_of(stopped, "False", "InstanceCrashing") == ["Warning InstanceCrashing: why"]


def a_rollout(completed: str = "hash", **states: CityRolloutState) -> WorkloadRollout:
    cities = [CityRollout(placement="default", city=city, state=states[city]) for city in states]
    return WorkloadRollout(cities=cities, completed_template_hash=completed)


def rollout_events(before: WorkloadRollout, after: WorkloadRollout) -> list[str]:
    workload = a_workload(cities=("DFW", "LHR"))
    status = msgspec.structs.replace(workload.status, rollout=before)
    observed = msgspec.structs.replace(workload, status=status)
    (patch,) = plan_status(
        PROJECT, WORKLOAD, observed, msgspec.structs.replace(status, rollout=after)
    )
    return [f"{e.type} {e.reason}: {e.message}" for e in user_events(patch, observed)]


def test_each_step_of_a_rollout_from_city_to_city_is_an_event() -> None:
    first = a_rollout(DFW="RollingOut", LHR="Waiting")
    assert rollout_events(a_rollout(DFW="Done", LHR="Done"), first) == [
        "Normal CityRollingOut: DFW gets the new template"
    ]
    assert rollout_events(first, a_rollout(DFW="Done", LHR="RollingOut")) == [
        "Normal CityDone: DFW has completed the rollout",
        "Normal CityRollingOut: LHR gets the new template",
    ]
    assert rollout_events(first, a_rollout(DFW="Failed", LHR="Waiting")) == [
        "Warning CityFailed: DFW failed"
    ]
    assert rollout_events(first, a_rollout(DFW="Skipped", LHR="Waiting")) == [
        "Warning CitySkipped: DFW cannot be updated now"
    ]


def test_first_rollout_of_a_workload_has_no_events_for_its_cities() -> None:
    new = a_rollout("", DFW="RollingOut", LHR="RollingOut")
    assert rollout_events(WorkloadRollout(), new) == []
    assert rollout_events(new, a_rollout(DFW="Done", LHR="Done")) == []


def test_rollback_is_an_event_that_names_both_revisions() -> None:
    before = a_rollout(DFW="Failed", LHR="Waiting")
    after = msgspec.structs.replace(before, failed_revision=4, running_revision=3)
    assert rollout_events(before, after) == [
        "Warning RolledBack: Revision 4 failed; all cities return to revision 3"
    ]


def test_the_start_of_a_deletion_is_one_normal_event() -> None:
    leaving = an_instance("True", "Available", terminating=True)
    assert events_of(leaving, "False", "Stopping") == ["Normal Terminating: why"]
    stopping = an_instance("False", "Stopping", terminating=True)
    assert events_of(stopping, "False", "Removing") == []
    assert events_of(stopping, "False", "ImageUnavailable") == []


def in_workload(instance: Instance) -> Instance:
    of_workload = {labels.WORKLOAD_NAME: "shop", labels.WORKLOAD_UID: "u-shop"}
    metadata = msgspec.structs.replace(instance.metadata, labels=of_workload)
    return msgspec.structs.replace(instance, metadata=metadata)


def test_an_instance_event_in_a_project_is_related_to_its_workload_and_repeated_for_it() -> None:
    instance = in_workload(an_instance("True", "Available"))
    ready = {"type": "Ready", "status": "False", "reason": "ImageUnavailable", "message": "why"}
    action = PatchStatus(PROJECT, INSTANCE, REF, "1", {"conditions": [ready]}, "report")
    of_instance, of_workload = user_events(action, instance)
    assert related(of_instance) == ("Instance", "web-0", "Workload", "shop")
    assert related(of_workload) == ("Workload", "shop", "WorkloadDeployment", "web")
    assert (of_workload.message, of_workload.member, of_workload.cause) == (
        *("ImageUnavailable", "web-0"),
        "why",
    )
    in_cell = PatchStatus(DFW, INSTANCE, REF, "1", {"conditions": [ready]}, "report")
    assert [event.related for event in user_events(in_cell, instance)] == [None]


def test_a_created_instance_is_an_event_of_its_deployment_and_its_workload() -> None:
    instance = in_workload(an_instance("False", "Pending"))
    of_deployment, of_workload = user_events(Create(PROJECT, INSTANCE, instance, "scale up"), None)
    assert related(of_deployment) == ("WorkloadDeployment", "web", "Workload", "shop")
    assert related(of_workload) == ("Workload", "shop", "WorkloadDeployment", "web")
    assert {of_deployment.reason, of_workload.reason} == {"InstanceCreated"}


def test_a_changed_number_of_instances_is_an_event_of_the_workload() -> None:
    workload = a_new_workload("web:1", replicas=2)
    workload = msgspec.structs.replace(
        workload, metadata=msgspec.structs.replace(workload.metadata, uid="u-web")
    )
    deployment = desired_deployments(workload)[0]
    grow = plan_object(PROJECT, DEPLOYMENT, with_replicas(deployment, 3), deployment, "scale")
    (event,) = user_events(grow[0], deployment)
    assert (event.object.kind, event.object.uid, event.reason) == ("Workload", "u-web", "Scaled")
    assert f"{event.message} {event.member}" == "Scaled from 2 to 3 instances: DFW"
    paused = Patch(PROJECT, DEPLOYMENT, REF, {"spec": {"paused": True}}, "pause")
    assert list(user_events(paused, deployment)) == []


def with_replicas(deployment: WorkloadDeployment, replicas: int) -> WorkloadDeployment:
    settings = msgspec.structs.replace(deployment.spec.scale_settings, min_replicas=replicas)
    spec = msgspec.structs.replace(deployment.spec, scale_settings=settings)
    return msgspec.structs.replace(deployment, spec=spec)


def related(event: EventRequest) -> tuple[str, str, str, str]:
    assert event.related is not None
    return event.object.kind, event.object.name, event.related.kind, event.related.name


def test_removed_conditions_are_not_reported() -> None:
    instance = an_instance("True", "Available")
    action = PatchStatus(DFW, INSTANCE, REF, "7", {"conditions": None}, "report")
    assert list(user_events(action, instance)) == []


def test_a_failed_wake_is_reported() -> None:
    wake = {"at": "2026-01-01T00:00:00Z", "failure": "it crashed"}
    action = PatchStatus(DFW, INSTANCE, REF, "7", {"lastWake": wake}, "report")
    (notice,) = user_events(action, an_instance("True", "Available"))
    assert (notice.type, notice.reason) == ("Warning", "WakeFailed")
    assert "it crashed" in notice.message
    served = PatchStatus(DFW, INSTANCE, REF, "7", {"lastWake": {**wake, "failure": None}}, "report")
    assert list(user_events(served, an_instance("True", "Available"))) == []


def test_copies_on_the_hub_cause_no_events() -> None:
    assert events_of(an_instance("False", "Pending"), "True", "Available", HUB) == []


def test_events_of_children_are_recorded_on_the_owner() -> None:
    child = an_instance("True", "Available")
    (made,) = user_events(Create(DFW, INSTANCE, child, "scale up"), None)
    (gone,) = user_events(Delete(DFW, INSTANCE, REF, "u-1", "no longer wanted"), child)
    assert (made.object.uid, made.reason, made.message, made.member) == (
        "u-owner",
        "InstanceCreated",
        "Created",
        "web-0",
    )
    assert (gone.message, gone.member, gone.cause) == ("Removing", "web-0", "no longer wanted")
    assert list(user_events(Wait("for a machine"), None)) == []


def test_an_object_created_with_status_reports_its_condition() -> None:
    made = an_instance("True", "Available")
    create = Create(DFW, INSTANCE, made, "as on the cell", with_status=True)
    assert [n.reason for n in user_events(create, made)] == ["InstanceCreated", "Available"]
    dropped = msgspec.structs.replace(made, status=InstanceStatus())  # as Kubernetes does
    assert [n.reason for n in user_events(create, dropped)] == ["InstanceCreated"]


def test_only_removal_of_the_last_finalizer_is_reported() -> None:
    leaving = an_instance("False", "Stopping", terminating=True)

    def patch(finalizers: list[str]) -> Patch:
        return Patch(DFW, INSTANCE, REF, {"metadata": {"finalizers": finalizers}}, "release")

    assert [n.reason for n in user_events(patch([]), leaving)] == ["Deleted"]
    assert list(user_events(patch(["theirs"]), leaving)) == []
    assert list(user_events(patch([]), an_instance("True", "Available"))) == []


def test_an_unconfirmed_release_is_a_warning() -> None:
    leaving = an_instance("False", "Stopping", terminating=True)
    patch = Patch(DFW, INSTANCE, REF, {"metadata": {"finalizers": []}}, "release", "dfw is away")
    (notice,) = user_events(patch, leaving)
    assert (notice.type, notice.reason, notice.message) == (
        "Warning",
        "DeletionUnconfirmed",
        "dfw is away",
    )


def test_events_of_a_workload_appear_on_its_project_and_cell_once() -> None:
    audit: list[AuditEvent] = []

    async def story(loop: VirtualLoop) -> None:
        platform = a_platform(loop, audit)
        await platform.load()
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        user = platform.client(PROJECT, f"token-of-{PROJECT}")
        await user.create(WORKLOAD, a_new_workload("web:1", replicas=1))
        await asyncio.sleep(SETTLE_S)
        settled = {plane: platform.store.version(plane) for plane in (PROJECT, CELL, HUB)}
        await asyncio.sleep(10 * SETTLE_S)
        assert settled == {plane: platform.store.version(plane) for plane in settled}
        await user.delete(WORKLOAD, Ref("default", "web"))
        await asyncio.sleep(SETTLE_S)
        on_project = reasons((await user.list(EVENT)).items)
        assert on_project == {
            "Workload": sorted(
                [
                    *("Available", "AvailablePlacementFound", "Deleted", "Terminating"),
                    *of("WorkloadDeployment"),
                    *of("Instance"),
                ]
            ),
            "WorkloadDeployment": [
                "Deleted",
                *of("Instance"),
                *("StableInstanceFound", "Terminating"),
            ],
            "Instance": ["Available"],
        }
        operator = platform.client(CELL, f"token-of-{CELL}")
        on_cell = reasons((await operator.list(EVENT)).items)
        assert on_cell["Instance"] == ["Available", "Deleted", "Terminating"]
        hub = platform.client(HUB, f"token-of-{HUB}")
        assert (await hub.list(EVENT)).items == []
        running.cancel()

    run_virtual(Random(1), story)


def of(kind: str) -> list[str]:
    return [f"{kind}Created", f"{kind}Removed"]


def reasons(events: list[Event]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for event in events:
        assert msgspec.structs.asdict(event)["count"] == 1
        found.setdefault(event.involved_object.kind, []).append(event.reason)
    return {kind: sorted(names) for kind, names in found.items()}
