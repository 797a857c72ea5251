"""Which Instances a deployment creates, recreates and removes, in which order.

Order guarantees (OrderedReady):
- Instances are created in ascending order, each when all below it are Ready.
- A changed template is rolled by recreating from the highest ordinal down, one at a time; what
  is not Ready goes first, so that a broken template can always be replaced.
- Surplus instances go highest first and never wait for anything else.
Of the ordered steps only the first is carried out; the rest stay in the plan as skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from datum_compute.api import labels
from datum_compute.api.codec import plain
from datum_compute.api.conditions import is_true
from datum_compute.api.identity import instance_name
from datum_compute.api.instance import READY, Instance, InstanceControl, InstanceSpec, Runtime
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.meta import ObjectMeta, controller_uid, owner_reference, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Create, Delete, Patch, Plan, Wait
from datum_compute.planning.template import template_hash

Step = Create | Delete | Wait


def plan_instances(
    plane: PlaneName, deployment: WorkloadDeployment, instances: Sequence[Instance]
) -> Plan:
    """``instances`` are all that the deployment controls, terminating ones included."""
    wanted = 0 if deployment.is_terminating else deployment.spec.scale_settings.min_replicas
    slots = {ordinal(i): i for i in instances}
    surplus = [i for number, i in sorted(slots.items(), reverse=True) if not 0 <= number < wanted]
    broken: list[Step] = []
    ordered: list[Step] = []
    rolled: list[Step] = []
    current = template_hash(deployment.spec.template)
    runtime = deployment.spec.template.spec.runtime
    for number in range(wanted):
        instance = slots.get(number)
        if instance is None:
            ordered.append(_create(plane, deployment, number, current))
        elif instance.is_terminating:
            ordered.append(Wait(f"{instance.metadata.name} is being removed"))
        elif not is_ready(instance) and not _is_current(instance, current, runtime):
            broken.insert(0, _recreate(plane, instance, "not ready and of an older template"))
        elif not is_ready(instance):
            ordered.append(Wait(f"{instance.metadata.name} is not ready"))
        elif not _is_current(instance, current, runtime):
            rolled.insert(0, _recreate(plane, instance, "of an older template"))
    adoptions = [_adopt(plane, deployment, i) for i in instances if _is_lost(i)]
    surplus_steps = _first_only(_surplus_steps(plane, surplus))
    return Plan((*adoptions, *surplus_steps, *_first_only([*broken, *ordered, *rolled])))


def ordinal(instance: Instance) -> int:
    """From the label, else from the name; -1 for a stray that has neither."""
    text = instance.metadata.labels.get(labels.INSTANCE_INDEX, "")
    text = text or instance.metadata.name.rpartition("-")[2]
    return int(text) if text.isdecimal() else -1


def is_ready(instance: Instance) -> bool:
    return is_true(instance.status.conditions, READY)


def _is_lost(instance: Instance) -> bool:
    return not controller_uid(instance) and not instance.is_terminating


def _adopt(plane: PlaneName, deployment: WorkloadDeployment, instance: Instance) -> Patch:
    """An instance of ours whose owner somebody removed would outlive its deployment."""
    owner = owner_reference(deployment, DEPLOYMENT)
    metadata = {
        "resourceVersion": instance.metadata.resource_version,
        "ownerReferences": plain([*instance.metadata.owner_references, owner]),
    }
    return Patch(plane, INSTANCE, ref_of(instance), {"metadata": metadata}, "it lost its owner")


def _is_current(instance: Instance, current: str, runtime: Runtime) -> bool:
    """By hash, and by what it really asks for: a spec edited by hand is drift as well."""
    spec = instance.spec
    return spec.controller.template_hash == current and spec.runtime == runtime


def _first_only(steps: Sequence[Step]) -> list[Step]:
    return [step if index == 0 else replace(step, skipped=True) for index, step in enumerate(steps)]


def _surplus_steps(plane: PlaneName, surplus: Sequence[Instance]) -> list[Step]:
    return [
        Wait(f"{i.metadata.name} is being removed")
        if i.is_terminating
        else Delete(plane, INSTANCE, ref_of(i), i.metadata.uid, "no longer wanted")
        for i in surplus
    ]


def _recreate(plane: PlaneName, instance: Instance, reason: str) -> Delete:
    return Delete(plane, INSTANCE, ref_of(instance), instance.metadata.uid, reason)


def _create(plane: PlaneName, deployment: WorkloadDeployment, number: int, current: str) -> Create:
    spec, template = deployment.spec, deployment.spec.template
    own_labels = {
        labels.WORKLOAD_UID: spec.workload_ref.uid,
        labels.WORKLOAD_NAME: spec.workload_ref.name,
        labels.DEPLOYMENT_NAME: deployment.metadata.name,
        labels.PLACEMENT_NAME: spec.placement_name,
        labels.CITY_CODE: spec.city_code,
        labels.INSTANCE_INDEX: str(number),
    }
    instance = Instance(
        metadata=ObjectMeta(
            name=instance_name(deployment.metadata.name, number),
            namespace=deployment.metadata.namespace,
            labels={**template.metadata.labels, **own_labels},
            annotations=template.metadata.annotations,
            owner_references=[owner_reference(deployment, DEPLOYMENT)],
            # There from the first moment, so that no crash can leave a machine or a hub copy
            # behind an instance that is gone.
            finalizers=[labels.INSTANCE_FINALIZER, labels.PROVISIONER_FINALIZER],
        ),
        spec=InstanceSpec(
            runtime=template.spec.runtime, controller=InstanceControl(template_hash=current)
        ),
    )
    return Create(plane, INSTANCE, instance, f"slot {number} is empty")
