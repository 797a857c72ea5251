"""Chains of causes: the last link of every fault is its cause and states who must act."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from datum_compute.api.compute.deployment import (
    AttachmentProblem,
    NetworkAttachment,
    WorkloadDeployment,
)
from datum_compute.api.compute.instance import Instance, InstanceControl, SchedulingGate
from datum_compute.api.compute.instance_type import (
    InstanceType,
    InstanceTypeLifecycle,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.compute.server import Server, ServerSpec, ServerStatus
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    make_condition,
)
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.planning.explain.advice import Actor
from datum_compute.planning.explain.explain import (
    deprecated_type,
    explain_deployment,
    explain_instance,
    explain_workload,
    render_link,
)
from datum_compute.planning.network.addresses import network_verdict
from datum_compute.planning.rollout.gates import observed_ready
from datum_compute.planning.rollout.status import deployment_status
from datum_compute.planning.rollout.suspension import NO_CELL
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.planning.workload.status import workload_status
from testkit.builders import NOW, a_deployment, a_workload, an_instance

# --- deprecated instance types


@pytest.mark.parametrize(
    ("phase", "replacement", "message"),
    [
        ("Deprecated", "d9", "is deprecated: use d9"),
        ("Disabled", "", "is disabled"),
        ("Active", "", ""),
    ],
)
def test_an_instance_type_that_is_not_active_has_advice(
    phase: Literal["Active", "Deprecated", "Disabled"], replacement: str, message: str
) -> None:
    workload = a_workload()
    name = workload.spec.template.spec.runtime.resources.instance_type
    lifecycle = InstanceTypeLifecycle(phase=phase, replacement_instance_type=replacement)
    resources = InstanceTypeResources(cpu="1", memory="1Gi")
    used = InstanceType(
        metadata=ObjectMeta(name=name.rpartition("/")[2]),
        spec=InstanceTypeSpec(resources=resources, lifecycle=lifecycle),
    )
    found = deprecated_type(workload, [used])
    assert (found.message if found is not None else "") == (
        f"instance type {name} {message}" if message else ""
    )
    assert found is None or found.command.startswith("kubectl edit workload web ")
    assert deprecated_type(workload, []) is None


# --- chains


def observed(
    image: str, *states: Condition, gates: tuple[str, ...] = (), replicas: int = 1
) -> tuple[Workload, list[WorkloadDeployment], list[Instance]]:
    """A workload in one city whose first instance has the conditions ``states``."""
    workload = a_workload(image, replicas=replicas)
    (deployment,) = desired_deployments(workload)
    metadata = msgspec.structs.replace(deployment.metadata, uid="d", generation=1)
    deployment = msgspec.structs.replace(deployment, metadata=metadata)
    instance = an_instance(0, image, deployment=deployment)
    control = msgspec.structs.replace(
        instance.spec.controller, scheduling_gates=[SchedulingGate(name=g) for g in gates]
    )
    instance = msgspec.structs.replace(
        instance,
        spec=msgspec.structs.replace(instance.spec, controller=control),
        status=msgspec.structs.replace(instance.status, conditions=list(states)),
    )
    ready = observed_ready(instance, NOW)
    instance = msgspec.structs.replace(
        instance, status=msgspec.structs.replace(instance.status, conditions=[*states, ready])
    )
    status = deployment_status(deployment, [instance], NOW, simulated=True)
    deployment = msgspec.structs.replace(deployment, status=status)
    workload = msgspec.structs.replace(
        workload, status=workload_status(workload, [deployment], NOW)
    )
    return workload, [deployment], [instance]


def reported(type_: str, status: str, reason: str, message: str = "") -> Condition:
    return make_condition(type_, ConditionValue(status, reason, message), generation=1, now=NOW)  # type: ignore[arg-type]


GOOD = (
    reported("Programmed", TRUE, "Programmed"),
    reported("Available", TRUE, "Available"),
)
CRASHING = reported("Available", FALSE, "InstanceCrashing", "container app exited with code 1")
NO_IMAGE = reported("Programmed", FALSE, "ImageUnavailable", "no such tag")


def test_a_bad_image_is_explained_from_workload_to_instance() -> None:
    explanation = explain_workload(*observed("web:1", NO_IMAGE))
    assert [link.kind for link in explanation.links] == [
        "Workload",
        "WorkloadDeployment",
        "Instance",
    ]
    assert {link.reason for link in explanation.links} == {"ImageUnavailable"}
    cause = explanation.cause
    assert (cause.actor, cause.message, cause.since) == (Actor.USER, "no such tag", NOW)
    assert cause.command == "datumctl compute deploy web --image=IMAGE"
    assert "no such tag" in render_link(cause)


@pytest.mark.parametrize(
    ("states", "gates", "cause", "actor"),
    [
        ((), (), "PendingProgramming", Actor.WAIT),
        ((), ("Moonphase",), "SchedulingGatesPresent", Actor.PLATFORM),
        ((reported("QuotaGranted", FALSE, "QuotaExceeded", "11 of 10"),), ("Quota",),
         "QuotaExceeded", Actor.USER),
        ((reported("ReferencedDataReady", FALSE, "SourceNotFound", "x"),), ("ReferencedData",),
         "SourceNotFound", Actor.USER),
        ((reported("NetworkReady", FALSE, "NetworkFailedToCreate", "full"),), ("Network",),
         "NetworkFailedToCreate", Actor.PLATFORM),
        ((reported("Programmed", FALSE, "InstanceCrashing", "code 1"),), (),
         "InstanceCrashing", Actor.USER),
        ((reported("Programmed", FALSE, "QuantumFoam", "?"),), (), "QuantumFoam", Actor.PLATFORM),
    ],
)  # fmt: skip
def test_the_last_link_is_the_cause(
    states: tuple[Condition, ...], gates: tuple[str, ...], cause: str, actor: Actor
) -> None:
    explanation = explain_workload(*observed("web:1", *states, gates=gates))
    assert (explanation.cause.reason, explanation.cause.actor) == (cause, actor)


@pytest.mark.parametrize(
    ("problem", "command"),
    [
        ("LocationNotAvailable", "datumctl compute cities"),
        ("NetworkNotFound", "kubectl get networks --namespace=default"),
    ],
)
def test_a_network_problem_has_advice_for_the_user(problem: str, command: str) -> None:
    attachment = NetworkAttachment(
        network="default", problem=AttachmentProblem(reason=problem, message="none")
    )
    verdict = network_verdict(an_instance(0), attachment, ())
    network_ready = reported("NetworkReady", verdict.status, str(verdict.reason), verdict.message)
    workload, (deployment,), instances = observed("web:1", network_ready, gates=("Network",))
    spec = msgspec.structs.replace(deployment.spec, network_attachment=attachment)
    deployment = msgspec.structs.replace(deployment, spec=spec)
    cause = explain_workload(workload, [deployment], instances).cause
    assert (cause.reason, cause.actor, cause.command) == (verdict.reason, Actor.USER, command)


def test_a_condition_that_only_repeats_the_message_of_ready_is_not_the_cause() -> None:
    same = "slot 0 waits"
    states = (
        reported("ReferencedDataReady", "Unknown", "Resolving", same),
        reported("NetworkReady", FALSE, "NetworkFailedToCreate", "full"),
        reported("Ready", FALSE, "NetworkFailedToCreate", same),
    )
    _, _, (instance,) = observed("web:1", *states)
    conditions = [c for c in instance.status.conditions if c.type != "Ready"]
    status = msgspec.structs.replace(instance.status, conditions=[*conditions, states[-1]])
    explanation = explain_instance(msgspec.structs.replace(instance, status=status))
    assert [link.condition for link in explanation.links] == ["Ready", "NetworkReady"]


def test_a_healthy_workload_has_one_link() -> None:
    (link,) = explain_workload(*observed("web:1", *GOOD)).links
    assert (link.kind, link.status, link.reason) == ("Workload", TRUE, "AvailablePlacementFound")


def test_a_rollout_without_surge_is_explained() -> None:
    workload, (deployment,), instances = observed("web:1", *GOOD)
    missing = reported("SurgeAvailable", FALSE, "SurgeUnavailable", "the limit is used up")
    status = msgspec.structs.replace(
        deployment.status, conditions=[*deployment.status.conditions, missing]
    )
    deployment = msgspec.structs.replace(deployment, status=status)
    workload = msgspec.structs.replace(
        workload, status=workload_status(workload, [deployment], NOW)
    )
    first = explain_workload(workload, [deployment], instances).links[0]
    assert (first.condition, first.reason, first.actor) == (
        *("SurgeAvailable", "SurgeUnavailable"),
        Actor.WAIT,
    )


def test_a_ready_instance_does_not_hide_the_cause_of_others() -> None:
    workload, (deployment,), (instance,) = observed("web:1", *GOOD, replicas=3)
    explanation = explain_workload(workload, [deployment], [instance])
    assert [link.reason for link in explanation.links] == ["RollingOut", "AwaitingCreation"]
    assert explanation.steps == (
        f"create Instance default/{deployment.metadata.name}-1: slot 1 is empty",
        f"deferred create Instance default/{deployment.metadata.name}-2: slot 2 is empty",
    )


def test_an_unobserved_generation_is_reported_first() -> None:
    workload, deployments, instances = observed("web:1", NO_IMAGE)
    metadata = msgspec.structs.replace(workload.metadata, generation=2)
    (link,) = explain_workload(
        msgspec.structs.replace(workload, metadata=metadata), deployments, instances
    ).links
    assert (link.condition, link.actor) == ("Observed", Actor.WAIT)
    assert "Generation 2" in link.message


def test_a_terminating_object_lists_its_finalizers() -> None:
    explanation = explain_instance(an_instance(0, terminating=True))
    assert "provisioner" in explanation.cause.message
    assert explanation.cause.since == NOW


def test_on_a_cell_the_server_is_the_last_link() -> None:
    _, (deployment,), (instance,) = observed("web:1", NO_IMAGE)
    server = Server(
        metadata=ObjectMeta(name=instance.metadata.name, namespace="default"),
        spec=ServerSpec(
            instance_type="d1-standard-2",
            template_hash="x",
            containers=instance.spec.runtime.sandbox.containers,
        ),
        status=ServerStatus(phase="Failed", reason="ImageUnavailable", message="404 of registry"),
    )
    explanation = explain_deployment(deployment, [instance], [server])
    assert (explanation.cause.kind, explanation.cause.message) == ("Server", "404 of registry")


def test_the_city_with_the_worst_reason_is_explained() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    deployments = []
    for deployment, reason in zip(
        desired_deployments(workload), ("InstancesProvisioning", "ImageUnavailable"), strict=True
    ):
        available = reported("Available", FALSE, reason, f"{deployment.spec.city_code} is down")
        status = msgspec.structs.replace(deployment.status, conditions=[available])
        deployments.append(msgspec.structs.replace(deployment, status=status))
    workload = msgspec.structs.replace(workload, status=workload_status(workload, deployments, NOW))
    explanation = explain_workload(workload, deployments, [])
    assert explanation.cause.message == "ORD is down"


@pytest.mark.parametrize("reason", NO_CELL)
def test_no_instance_is_planned_for_a_city_without_a_cell(reason: str) -> None:
    deployment = a_deployment()
    available = reported("Available", FALSE, reason, "No cell serves city DFW")
    status = msgspec.structs.replace(deployment.status, conditions=[available])
    explanation = explain_deployment(msgspec.structs.replace(deployment, status=status), [])
    assert explanation.steps == ("wait: no cell can create its instances: No cell serves city DFW",)
    assert explanation.cause.message == "No cell serves city DFW"


def test_foreign_finalizers_are_named_and_need_the_user() -> None:
    workload = a_workload(terminating=True)
    held = msgspec.structs.replace(workload.metadata, finalizers=["example.com/hold"])
    explanation = explain_workload(msgspec.structs.replace(workload, metadata=held), [], [])
    assert (explanation.cause.actor, explanation.cause.reason) == (Actor.USER, "HeldByFinalizer")
    assert "example.com/hold" in explanation.cause.message
    assert explain_workload(workload, [], []).cause.reason == "Stopping"


def test_the_steps_wait_for_a_replacement_that_is_not_available_yet() -> None:
    deployment = a_deployment(replicas=2)
    instances = [an_instance(0, "web:0"), an_instance(1, ready_since=NOW)]
    status = deployment_status(deployment, instances, NOW)
    settling = msgspec.structs.replace(deployment, status=status)
    assert explain_deployment(settling, instances).steps == (
        "wait: web-dfw-1 is ready but not yet available",
        "deferred delete Instance default/web-dfw-0: of an older template",
    )


def test_the_crash_of_an_undone_template_is_not_the_cause() -> None:
    """A rollout undo replaces the instance: what it ran before explains nothing."""
    _, (deployment,), (instance,) = observed("web:1", CRASHING)
    crashing = explain_deployment(deployment, [instance])
    assert (crashing.cause.kind, crashing.cause.reason) == ("Instance", "InstanceCrashing")
    outdated = msgspec.structs.replace(
        instance,
        spec=msgspec.structs.replace(
            instance.spec, controller=InstanceControl(template_hash="undone")
        ),
    )
    metadata = msgspec.structs.replace(deployment.metadata, generation=2)
    undone = explain_deployment(msgspec.structs.replace(deployment, metadata=metadata), [outdated])
    assert [(link.kind, link.condition) for link in undone.links] == [
        ("WorkloadDeployment", "Observed")
    ]
    (step,) = undone.steps
    assert step.endswith("not ready and of an older template")
    paused = msgspec.structs.replace(
        deployment, spec=msgspec.structs.replace(deployment.spec, paused=True)
    )
    assert explain_deployment(paused, [outdated]).cause.kind == "Instance", "nothing replaces it"
