"""The order in which cities get a new template, and what happens when one fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    ObservedSource,
    SurgeSlots,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.instance import AVAILABLE
from datum_compute.api.compute.workload import (
    PROGRESSING,
    BlockedReplicas,
    CityRestart,
    Placement,
    RolloutPolicy,
    ScaleSettings,
    Workload,
)
from datum_compute.api.compute.workload_revision import WorkloadRevision
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionStatus,
    Reason,
    find_condition,
)
from datum_compute.api.planes import project_plane
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Plan
from datum_compute.planning.workload.city_order import needs_revisions
from datum_compute.planning.workload.deployments import plan_workload
from datum_compute.planning.workload.revisions import plan_revisions
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_template, a_workload

PROJECT = project_plane("default")
CITIES = ("DFW", "LHR", "SIN")


@dataclass
class Project:
    """The objects of a workload in a project, changed only by plans and reports of cells."""

    workload: Workload
    deployments: dict[str, WorkloadDeployment] = field(default_factory=dict)  # by city
    revisions: list[WorkloadRevision] = field(default_factory=list)

    def step(self) -> Plan:
        """Record a revision, then apply one plan of the workload."""
        for action in plan_revisions(PROJECT, self.workload, self.revisions).actions:
            assert isinstance(action, Create)
            self.revisions.append(action.object)  # type: ignore[arg-type]
        deployments = [self.deployments[city] for city in sorted(self.deployments)]
        spec = self.workload.spec
        is_needed = needs_revisions(self.workload, deployments)
        revisions = self.revisions if is_needed else []
        plan = plan_workload(PROJECT, self.workload, deployments, NOW, revisions=revisions)
        for action in plan.actions:
            self._apply(action)
        assert self.workload.spec == spec
        return plan

    def settle(self) -> None:
        for _ in range(20):
            if not self.step().actions:
                return
        raise AssertionError("the planner does not settle")

    def _apply(self, action: object) -> None:
        match action:
            case Create(object=WorkloadDeployment() as created):
                metadata = msgspec.structs.replace(created.metadata, generation=1, uid="u")
                self.deployments[created.spec.city_code] = msgspec.structs.replace(
                    created, metadata=metadata
                )
            case Patch(ref=ref, patch=patch):
                old = next(d for d in self.deployments.values() if d.metadata.name == ref.name)
                changed = merge(msgspec.to_builtins(old), patch)
                new = msgspec.convert(changed, WorkloadDeployment)
                generation = old.metadata.generation + (new.spec != old.spec)
                metadata = msgspec.structs.replace(new.metadata, generation=generation)
                self.deployments[old.spec.city_code] = msgspec.structs.replace(
                    new, metadata=metadata
                )
            case Delete(ref=ref):
                self.deployments = {
                    city: d for city, d in self.deployments.items() if d.metadata.name != ref.name
                }
            case PatchStatus(status=status):
                changed = merge(msgspec.to_builtins(self.workload), {"status": status})
                self.workload = msgspec.convert(changed, Workload)

    # --- users

    def set(self, image: str = "", **spec: Any) -> None:
        if image:
            spec["template"] = a_template(image)
        changed = msgspec.structs.replace(self.workload.spec, **spec)
        metadata = msgspec.structs.replace(
            self.workload.metadata, generation=self.workload.metadata.generation + 1
        )
        self.workload = msgspec.structs.replace(self.workload, spec=changed, metadata=metadata)

    # --- cells

    def report(self, *cities: str, reason: str = Reason.ROLLOUT_COMPLETE) -> None:
        for city in cities:
            found = self.deployments[city]
            generation = found.metadata.generation
            status: ConditionStatus = TRUE
            if reason == Reason.PROGRESS_DEADLINE_EXCEEDED:
                status = FALSE
            blocked = [BlockedReplicas(reason="ImageUnavailable", replicas=1, message="no web:2")]
            is_failed = reason == Reason.PROGRESS_DEADLINE_EXCEEDED
            self.deployments[city] = msgspec.structs.replace(
                found,
                status=WorkloadDeploymentStatus(
                    conditions=[
                        Condition(type=AVAILABLE, status=TRUE, reason="StableInstanceFound"),
                        Condition(type=PROGRESSING, status=status, reason=reason, message="late"),
                    ],
                    observed_generation=generation,
                    observed_source=ObservedSource(
                        generation=generation, template_hash=template_hash(found.spec.template)
                    ),
                    ready_replicas=1,
                    blocked=blocked if is_failed else [],
                ),
            )

    def fail(self, city: str) -> None:
        self.report(city, reason=Reason.PROGRESS_DEADLINE_EXCEEDED)

    def skip(self, city: str, reason: str = Reason.CELL_UNREACHABLE) -> None:
        found = self.deployments[city]
        conditions = [
            Condition(type=type_, status=UNKNOWN, reason=reason, message="it is gone")
            for type_ in (AVAILABLE, PROGRESSING)
        ]
        status = msgspec.structs.replace(found.status, conditions=conditions)
        self.deployments[city] = msgspec.structs.replace(found, status=status)

    # --- results

    @property
    def images(self) -> dict[str, str]:
        return {
            city: d.spec.template.spec.runtime.sandbox.containers[0].image
            for city, d in sorted(self.deployments.items())
        }

    @property
    def states(self) -> dict[str, str]:
        return {city.city: city.state for city in self.workload.status.rollout.cities}

    @property
    def progressing(self) -> Condition:
        found = find_condition(self.workload.status.conditions, PROGRESSING)
        assert found is not None
        return found


def merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged.get(key), value)
    return merged


def a_project(cities: tuple[str, ...] = CITIES, **policy: Any) -> Project:
    """Return a project whose workload has completed the rollout of web:1 in all cities."""
    workload = a_workload(cities=cities)
    spec = msgspec.structs.replace(workload.spec, rollout=RolloutPolicy(**policy))
    project = Project(msgspec.structs.replace(workload, spec=spec))
    project.settle()
    project.report(*cities)
    project.settle()
    return project


def all_on(image: str, cities: tuple[str, ...] = CITIES) -> dict[str, str]:
    return dict.fromkeys(cities, image)


# --- the order


def test_new_workload_starts_in_all_cities_at_once() -> None:
    project = Project(a_workload(cities=CITIES))
    project.settle()
    assert project.images == all_on("web:1")
    assert set(project.states.values()) == {"RollingOut"}
    project.report(*CITIES)
    project.settle()
    assert set(project.states.values()) == {"Done"}
    assert project.progressing.reason == Reason.ROLLOUT_COMPLETE


def test_template_goes_city_by_city_by_default_when_there_are_two_or_more_cities() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:1", "SIN": "web:1"}
    assert project.states == {"DFW": "RollingOut", "LHR": "Waiting", "SIN": "Waiting"}
    project.report("DFW")
    project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:2", "SIN": "web:1"}
    assert project.states == {"DFW": "Done", "LHR": "RollingOut", "SIN": "Waiting"}
    project.report("LHR")
    project.settle()
    project.report("SIN")
    project.settle()
    assert project.images == all_on("web:2")
    assert set(project.states.values()) == {"Done"}


def test_template_goes_to_all_cities_at_once_when_the_order_is_parallel() -> None:
    project = a_project(city_order="Parallel")
    project.set("web:2")
    project.settle()
    assert project.images == all_on("web:2")


def test_order_is_that_of_placements_and_then_their_cities() -> None:
    scale = ScaleSettings(min_replicas=1)
    placements = [
        Placement(name="z", city_codes=["SIN", "DFW"], scale_settings=scale),
        Placement(name="a", city_codes=["LHR"], scale_settings=scale),
    ]
    workload = a_workload()
    spec = msgspec.structs.replace(workload.spec, placements=placements)
    project = Project(msgspec.structs.replace(workload, spec=spec))
    project.settle()
    listed = [(c.placement, c.city) for c in project.workload.status.rollout.cities]
    assert listed == [("z", "SIN"), ("z", "DFW"), ("a", "LHR")]


@pytest.mark.parametrize(("canary", "first"), [(None, "DFW"), ("LHR", "LHR")])
def test_canary_city_is_updated_first_and_then_all_others(canary: str | None, first: str) -> None:
    project = a_project(city_order="CanaryCity", canary_city=canary)
    project.set("web:2")
    project.settle()
    assert project.images == {**all_on("web:1"), first: "web:2"}
    project.report(first)
    project.settle()
    assert project.images == all_on("web:2")


def test_another_city_is_the_canary_while_the_canary_city_is_skipped() -> None:
    project = a_project(city_order="CanaryCity")
    project.skip("DFW")
    project.set("web:2")
    project.settle()
    assert project.images == {**all_on("web:1"), "LHR": "web:2"}


def test_scale_change_applies_to_all_cities_at_once_while_cities_wait() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    (placement,) = project.workload.spec.placements
    scaled = msgspec.structs.replace(placement, scale_settings=ScaleSettings(min_replicas=4))
    project.set(placements=[scaled])
    project.settle()
    counts = {d.spec.scale_settings.min_replicas for d in project.deployments.values()}
    assert counts == {4}
    assert project.images == {**all_on("web:1"), "DFW": "web:2"}


def test_new_city_gets_the_current_template_at_once() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    (placement,) = project.workload.spec.placements
    project.set(placements=[msgspec.structs.replace(placement, city_codes=[*CITIES, "SYD"])])
    project.settle()
    assert project.images == {**all_on("web:1"), "DFW": "web:2", "SYD": "web:2"}


def test_fallback_city_gets_the_template_of_the_city_that_it_replaces() -> None:
    project = a_project()
    (placement,) = project.workload.spec.placements
    project.set(placements=[msgspec.structs.replace(placement, fallback_city_codes=["SYD"])])
    project.settle()
    project.set("web:2")
    project.settle()
    project.skip("SIN", Reason.CELL_UNREACHABLE)  # it has failed since the epoch
    project.settle()
    assert project.images == {**all_on("web:1"), "DFW": "web:2", "SYD": "web:1"}
    project.report("SYD")
    project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:1", "SYD": "web:1"}
    for city in ("DFW", "LHR", "SYD"):
        project.report(city)
        project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:2", "SYD": "web:2"}
    assert project.states == {"DFW": "Done", "LHR": "Done", "SIN": "Done"}


def test_deleted_deployment_of_a_waiting_city_is_recreated_with_its_template() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    del project.deployments["SIN"]
    project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:1", "SIN": "web:1"}


@pytest.mark.parametrize("city", CITIES)
def test_template_that_was_edited_by_hand_is_restored_at_once(city: str) -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    before = project.images
    found = project.deployments[city]
    spec = msgspec.structs.replace(found.spec, template=a_template("evil:1"))
    project.deployments[city] = msgspec.structs.replace(found, spec=spec)
    project.settle()
    assert project.images == before


def test_revisions_are_not_read_while_every_city_is_done() -> None:
    project = a_project(on_failure="Rollback")
    assert not needs_revisions(project.workload, list(project.deployments.values()))
    project.set("web:2")
    project.settle()
    assert needs_revisions(project.workload, list(project.deployments.values()))


def test_restart_of_one_city_applies_at_once_to_the_template_that_it_has() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.set(restarts=[CityRestart(city_code="SIN", at="t1")])
    project.settle()
    assert project.images == {**all_on("web:1"), "DFW": "web:2"}
    annotations = {
        city: d.spec.template.metadata.annotations for city, d in project.deployments.items()
    }
    assert annotations == {"DFW": {}, "LHR": {}, "SIN": {labels.CITY_RESTARTED_AT: "t1"}}
    for city in CITIES:
        project.report(city)
        project.settle()
    assert project.images == all_on("web:2")
    marks = project.deployments["SIN"].spec.template.metadata.annotations
    assert marks == {labels.CITY_RESTARTED_AT: "t1"}


def test_restart_of_the_workload_goes_city_by_city() -> None:
    project = a_project()
    template = a_template("web:1")
    marked = msgspec.structs.replace(template.metadata, annotations={labels.RESTARTED_AT: "t1"})
    project.set(template=msgspec.structs.replace(template, metadata=marked))
    project.settle()
    restarted = [
        city
        for city, d in project.deployments.items()
        if labels.RESTARTED_AT in d.spec.template.metadata.annotations
    ]
    assert restarted == ["DFW"]


def test_waiting_city_of_a_stopped_workload_waits_until_the_workload_runs_again() -> None:
    project = a_project()
    project.set("web:2", stopped=True)
    project.settle()
    waiting = [c for c in project.workload.status.rollout.cities if c.state == "Waiting"]
    messages = {city.message for city in waiting}
    assert messages == {"Keeps its template until the workload runs again"}
    assert project.images == all_on("web:1")


def test_paused_rollout_does_not_advance() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.set(paused=True)
    project.settle()
    project.report("DFW")
    project.settle()
    assert project.images == {**all_on("web:1"), "DFW": "web:2"}
    assert project.progressing.reason == Reason.ROLLOUT_PAUSED
    project.set(paused=False)
    project.settle()
    project.report("DFW")
    project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:2", "SIN": "web:1"}


def test_pause_of_a_workload_in_one_city_still_applies_the_template() -> None:
    project = a_project(("DFW",))
    project.set("web:2", paused=True)
    project.settle()
    assert project.images == {"DFW": "web:2"}
    assert project.deployments["DFW"].spec.paused


@pytest.mark.parametrize("field", ["generation", "template_hash"])
def test_older_status_never_advances_the_rollout(field: str) -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.report("DFW")
    found = project.deployments["DFW"]
    older = {"generation": found.metadata.generation - 1, "template_hash": "another"}
    source = msgspec.structs.replace(found.status.observed_source, **{field: older[field]})
    status = msgspec.structs.replace(found.status, observed_source=source)
    project.deployments["DFW"] = msgspec.structs.replace(found, status=status)
    project.settle()
    assert project.states == {"DFW": "RollingOut", "LHR": "Waiting", "SIN": "Waiting"}
    assert project.images == {**all_on("web:1"), "DFW": "web:2"}


def test_status_without_a_source_counts_for_its_generation_when_there_is_no_federation() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.report("DFW")
    found = project.deployments["DFW"]
    status = msgspec.structs.replace(found.status, observed_source=ObservedSource())
    project.deployments["DFW"] = msgspec.structs.replace(found, status=status)
    project.settle()
    assert project.states["DFW"] == "Done"


def test_done_city_stays_done_when_it_is_scaled_or_an_instance_fails_later() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.report("DFW")
    project.settle()
    project.fail("DFW")
    project.settle()
    assert project.states["DFW"] == "Done"
    assert project.images["DFW"] == "web:2"


@pytest.mark.parametrize(
    "reason",
    [
        Reason.CELL_UNREACHABLE,
        Reason.CELL_DRAINED,
        Reason.NO_MATCHING_LOCATION,
        Reason.AMBIGUOUS_SERVING_LOCATION,
    ],
)
def test_city_that_cannot_be_updated_is_skipped_and_named(reason: Reason) -> None:
    project = a_project()
    project.skip("DFW", reason)
    project.set("web:2")
    project.settle()
    assert project.states == {"DFW": "Skipped", "LHR": "RollingOut", "SIN": "Waiting"}
    first = project.workload.status.rollout.cities[0]
    assert (first.reason, first.message) == (reason, "it is gone")
    project.report("LHR")
    project.settle()
    project.report("SIN")
    project.settle()
    assert project.images == {"DFW": "web:1", "LHR": "web:2", "SIN": "web:2"}
    assert project.progressing.reason == reason
    assert "DFW" in project.progressing.message
    project.report("DFW")
    project.settle()
    assert project.states["DFW"] == "RollingOut"
    assert project.images == all_on("web:2")


def test_change_back_to_the_template_of_waiting_cities_applies_at_once() -> None:
    project = a_project((*CITIES, "SYD"))
    project.set("web:2")
    for city in ("DFW", "LHR"):
        project.settle()
        project.report(city)
    project.settle()
    assert project.images == {"DFW": "web:2", "LHR": "web:2", "SIN": "web:2", "SYD": "web:1"}
    project.set("web:1")
    project.step()
    assert project.images == all_on("web:1", (*CITIES, "SYD"))
    project.settle()
    assert project.states == {
        "DFW": "RollingOut",
        "LHR": "RollingOut",
        "SIN": "RollingOut",
        "SYD": "Done",
    }


def test_change_back_after_a_complete_rollout_goes_city_by_city() -> None:
    project = a_project()
    project.set("web:2")
    for city in CITIES:
        project.settle()
        project.report(city)
    project.settle()
    project.set("web:1")
    project.settle()
    assert project.images == {**all_on("web:2"), "DFW": "web:1"}


def test_change_back_is_repeated_when_its_status_was_not_written() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.report("DFW")
    project.settle()
    project.set("web:1")
    before = project.workload
    deployment = project.deployments["LHR"]
    project.step()
    project.workload, project.deployments["LHR"] = before, deployment  # a lost write
    project.settle()
    assert project.images == all_on("web:1")


def test_another_change_starts_with_the_first_city_when_cities_wait() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.report("DFW")
    project.settle()
    project.set("web:3")
    project.settle()
    assert project.images == {"DFW": "web:3", "LHR": "web:2", "SIN": "web:1"}


# --- failure


def test_failed_city_stops_the_rollout_and_is_named_with_its_cause() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    assert project.images == {**all_on("web:1"), "DFW": "web:2"}
    assert project.states == {"DFW": "Failed", "LHR": "Waiting", "SIN": "Waiting"}
    first = project.workload.status.rollout.cities[0]
    assert (first.reason, first.message) == ("ImageUnavailable", "no web:2")
    assert project.progressing.status == FALSE
    assert project.progressing.reason == Reason.PROGRESS_DEADLINE_EXCEEDED
    assert "DFW" in project.progressing.message
    assert "ImageUnavailable: no web:2" in project.progressing.message


def test_cause_of_a_failed_city_is_that_of_its_surge_instance() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    found = project.deployments["DFW"]
    surge = SurgeSlots(template_hash="new", ordinals="1", blocked=found.status.blocked)
    status = msgspec.structs.replace(found.status, blocked=[], surge=surge)
    project.deployments["DFW"] = msgspec.structs.replace(found, status=status)
    project.settle()
    first = project.workload.status.rollout.cities[0]
    assert (first.reason, first.message) == ("ImageUnavailable", "no web:2")


def test_stopped_rollout_continues_when_the_failed_city_recovers() -> None:
    project = a_project()
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    project.report("DFW")
    project.settle()
    assert project.states == {"DFW": "Done", "LHR": "RollingOut", "SIN": "Waiting"}


def test_failure_in_the_canary_city_leaves_the_other_cities() -> None:
    project = a_project(city_order="CanaryCity", canary_city="SIN")
    project.set("web:2")
    project.settle()
    project.fail("SIN")
    project.settle()
    assert project.images == {"DFW": "web:1", "LHR": "web:1", "SIN": "web:2"}


def test_rollback_restores_the_template_in_all_cities_and_keeps_the_spec() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.report("DFW")
    project.settle()
    project.fail("LHR")
    project.settle()
    assert project.images == all_on("web:1")
    rollout = project.workload.status.rollout
    assert (rollout.failed_revision, rollout.running_revision) == (2, 1)
    assert project.progressing.status == FALSE
    assert project.progressing.reason == Reason.ROLLED_BACK
    assert "LHR: ImageUnavailable: no web:2" in project.progressing.message
    assert project.workload.spec.template == a_template("web:2")
    project.report(*CITIES)
    project.settle()
    assert project.images == all_on("web:1")
    assert project.progressing.reason == Reason.ROLLED_BACK
    assert project.states == {"DFW": "Done", "LHR": "Failed", "SIN": "Done"}


def test_rollback_is_recorded_in_the_status_before_any_city_changes() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    plan = project.step()
    assert [type(action) for action in plan.actions] == [PatchStatus]
    assert project.images["DFW"] == "web:2"
    project.step()
    assert project.images == all_on("web:1")


def test_rollback_records_a_revision_with_its_cause() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    recorded = [
        (r.spec.revision, r.spec.cause, r.spec.restores, template_hash(r.spec.template))
        for r in project.revisions
    ]
    first, second = template_hash(a_template("web:1")), template_hash(a_template("web:2"))
    assert recorded == [
        (1, "Change", None, first),
        (2, "Change", None, second),
        (3, "AutomaticRollback", 1, first),
    ]


def test_rollback_restores_the_last_template_that_all_cities_completed() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.report("DFW")
    project.settle()
    project.set("web:3")
    project.settle()
    project.fail("DFW")
    project.settle()
    assert project.images == all_on("web:1")
    assert project.workload.status.rollout.running_revision == 1


def test_a_rollback_is_reported_after_the_failed_city_was_removed() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    assert project.progressing.message.startswith("Revision 2 failed in DFW, and all cities return")
    (placement,) = project.workload.spec.placements
    others = tuple(city for city in CITIES if city != "DFW")
    project.set(placements=[msgspec.structs.replace(placement, city_codes=list(others))])
    project.settle()
    assert project.progressing.reason == Reason.ROLLED_BACK
    assert project.progressing.message == "Revision 2 failed, and all cities return to revision 1"
    assert project.images == all_on("web:1", others)


def test_next_template_change_starts_again_after_a_rollback() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    project.report(*CITIES)
    project.settle()
    project.set("web:3")
    project.settle()
    assert project.images == {**all_on("web:1"), "DFW": "web:3"}
    rollout = project.workload.status.rollout
    assert (rollout.failed_revision, rollout.failed_template_hash) == (None, "")
    for city in CITIES:
        project.report(city)
        project.settle()
    assert project.progressing.reason == Reason.ROLLOUT_COMPLETE
    assert project.images == all_on("web:3")


def test_rollback_ends_when_the_user_restores_the_template() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    project.report(*CITIES)
    project.settle()
    project.set("web:1")
    project.settle()
    assert project.progressing.reason == Reason.ROLLOUT_COMPLETE
    assert set(project.states.values()) == {"Done"}
    assert [r.spec.revision for r in project.revisions] == [1, 2, 3]


def test_new_city_gets_the_restored_template_after_a_rollback() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    (placement,) = project.workload.spec.placements
    project.set(placements=[msgspec.structs.replace(placement, city_codes=[*CITIES, "SYD"])])
    project.settle()
    assert project.images == all_on("web:1", (*CITIES, "SYD"))


def test_first_template_is_not_rolled_back() -> None:
    workload = a_workload(cities=CITIES)
    spec = msgspec.structs.replace(workload.spec, rollout=RolloutPolicy(on_failure="Rollback"))
    project = Project(msgspec.structs.replace(workload, spec=spec))
    project.settle()
    project.fail("DFW")
    project.settle()
    assert project.images == all_on("web:1")
    assert project.states["DFW"] == "Failed"
    assert project.progressing.reason == Reason.PROGRESS_DEADLINE_EXCEEDED


def test_failure_of_a_new_city_does_not_roll_back_a_template_that_the_others_completed() -> None:
    project = a_project(on_failure="Rollback")
    project.set("web:2")
    for city in CITIES:
        project.settle()
        project.report(city)
    project.settle()
    (placement,) = project.workload.spec.placements
    project.set(placements=[msgspec.structs.replace(placement, city_codes=[*CITIES, "SYD"])])
    project.settle()
    project.fail("SYD")
    project.settle()
    assert project.images == all_on("web:2", (*CITIES, "SYD"))


def test_rollback_works_for_a_workload_in_one_city() -> None:
    project = a_project(("DFW",), on_failure="Rollback")
    project.set("web:2")
    project.settle()
    project.fail("DFW")
    project.settle()
    assert project.images == {"DFW": "web:1"}
