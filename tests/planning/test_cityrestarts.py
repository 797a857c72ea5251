"""Restarts of single cities: they last, and cost those nothing who never ask for one."""

from __future__ import annotations

import msgspec

from datum_compute.api.conditions import TRUE, Verdict, decided
from datum_compute.api.labels import CITY_RESTARTED_AT, RESTARTED_AT
from datum_compute.api.reasons import Reason
from datum_compute.api.workload import PROGRESSING, CityRestart, Workload
from datum_compute.api.workloaddeployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.planning.workload.status import workload_status
from datum_compute.planning.workload.templates import current_templates, template_hash, template_in
from testkit.builders import NOW, a_workload


def restarted(workload: Workload, *cities: str, at: str = "t1") -> Workload:
    restarts = [CityRestart(city_code=city, at=at) for city in cities]
    spec = msgspec.structs.replace(workload.spec, restarts=restarts)
    return msgspec.structs.replace(workload, spec=spec)


def hashes(workload: Workload) -> dict[str, str]:
    return {d.spec.city_code: template_hash(d.spec.template) for d in desired_deployments(workload)}


def test_only_the_city_that_was_named_gets_another_template() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    before, after = hashes(workload), hashes(restarted(workload, "dfw"))
    assert before["DFW"] == before["ORD"] == template_hash(workload.spec.template)
    assert after["ORD"] == before["ORD"]
    assert after["DFW"] != before["DFW"]


def test_it_is_found_again_at_every_pass_and_a_new_one_is_new() -> None:
    workload = a_workload(cities=("DFW",))
    once = restarted(workload, "DFW")
    assert hashes(once) == hashes(once)
    assert hashes(restarted(workload, "DFW", at="t2")) != hashes(once)


def test_a_restart_of_everything_reaches_a_city_that_was_restarted_alone() -> None:
    once = restarted(a_workload(cities=("DFW",)), "DFW")
    metadata = msgspec.structs.replace(
        once.spec.template.metadata, annotations={RESTARTED_AT: "later"}
    )
    template = msgspec.structs.replace(once.spec.template, metadata=metadata)
    spec = msgspec.structs.replace(once.spec, template=template)
    both = msgspec.structs.replace(once, spec=spec)
    assert hashes(both) != hashes(once)
    assert template_in(both, "DFW").metadata.annotations == {
        RESTARTED_AT: "later",
        CITY_RESTARTED_AT: "t1",
    }


def test_an_entry_of_a_city_it_has_left_changes_nothing() -> None:
    workload = a_workload(cities=("DFW",))
    assert hashes(restarted(workload, "LHR")) == hashes(workload)


def told(workload: Workload, deployment: WorkloadDeployment) -> WorkloadDeployment:
    """The deployment after its cell has reported on it in full."""
    current = current_templates(workload).hash_in(deployment.spec.city_code)
    done = Verdict(TRUE, Reason.ROLLOUT_COMPLETE, "done")
    status = WorkloadDeploymentStatus(
        replicas=1,
        updated_replicas=1,
        ready_replicas=1,
        desired_replicas=1,
        observed_generation=1,
        observed_source=ObservedSource(generation=1, template_hash=current),
        conditions=[decided(PROGRESSING, done, generation=1, now=NOW)],
    )
    metadata = msgspec.structs.replace(deployment.metadata, generation=1)
    return msgspec.structs.replace(deployment, metadata=metadata, status=status)


def test_the_workload_counts_a_restarted_city_as_up_to_date() -> None:
    workload = restarted(a_workload(cities=("DFW", "ORD")), "DFW")
    deployments = [told(workload, d) for d in desired_deployments(workload)]
    status = workload_status(workload, deployments, NOW)
    assert status.updated_replicas == 2
    (progressing,) = [c for c in status.conditions if c.type == PROGRESSING]
    assert progressing.reason == Reason.ROLLOUT_COMPLETE


def test_news_from_before_the_restart_does_not_count() -> None:
    before = a_workload(cities=("DFW", "ORD"))
    deployments = [told(before, d) for d in desired_deployments(before)]
    status = workload_status(restarted(before, "DFW"), deployments, NOW)
    assert status.updated_replicas == 1
