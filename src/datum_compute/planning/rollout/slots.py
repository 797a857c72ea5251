"""The replica slots of a deployment: their names, new Instances, and the state of each slot.

Rules:
- The name of an Instance is ``<deployment>-<ordinal>`` and alone determines its slot, because names
  are unique. Labels repeat the ordinal for readers and are repaired if they are wrong.
- Every Instance of a deployment that has another name is unslotted.
- A new Instance has the template, the labels that identify it on every plane, and the scheduling
  gates.
- A Ready instance is available after it has been Ready for ``minReadySeconds``.

A program that starts, is Ready for a moment and exits must not count as a successful replacement.
Where a check proves that the program serves (a readiness probe, a TCP port that the driver connects
to, the simulated driver), Ready is enough. Elsewhere Ready only means that the process has started,
so an instance has to stay Ready for a few seconds. The default is computed here and not in the
schema, because it depends on the template and on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import (
    READY,
    Instance,
    InstanceControl,
    InstanceSpec,
    InstanceTemplate,
    TemplateSpec,
)
from datum_compute.api.conditions import EPOCH, FALSE, TRUE, Condition, find_condition, is_true
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta.fields import NamespacedReference
from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from datum_compute.api.meta.timestamps import remaining_s
from datum_compute.api.planes import instance_name
from datum_compute.planning.rollout.gates import initial_gates


def new_instance(deployment: WorkloadDeployment, number: int, template_hash: str) -> Instance:
    """Return the Instance of a slot; ``template_hash`` is that of the deployment's template."""
    template = deployment.spec.template
    fields = {name: getattr(template.spec, name) for name in TemplateSpec.__struct_fields__}
    control = InstanceControl(
        template_hash=template_hash, scheduling_gates=initial_gates(deployment)
    )
    return Instance(
        metadata=ObjectMeta(
            name=instance_name(deployment.metadata.name, number),
            namespace=deployment.metadata.namespace,
            labels={**template.metadata.labels, **platform_labels(deployment, number)},
            annotations=template.metadata.annotations,
            owner_references=[owner_reference(deployment, DEPLOYMENT)],
            # Set at creation, so that no crash can leave a machine whose Instance is gone. A copy
            # on the hub has no finalizer (planning/federation/instances.py).
            finalizers=[labels.PROVISIONER_FINALIZER],
        ),
        spec=InstanceSpec(**fields, controller=control, location=location_of(deployment)),
    )


def location_of(deployment: WorkloadDeployment) -> NamespacedReference | None:
    """Return the location in the project; None until the network attachment names it."""
    attachment = deployment.spec.network_attachment
    name = attachment.location if attachment is not None else ""
    return NamespacedReference(name=name) if name else None


def platform_labels(deployment: WorkloadDeployment, number: int) -> dict[str, str]:
    """Return the labels that the platform sets on an instance. They override the template."""
    return {**shared_labels(deployment), labels.INSTANCE_INDEX: str(number)}


def shared_labels(deployment: WorkloadDeployment) -> dict[str, str]:
    """Return the platform labels that all instances of a deployment have in common."""
    spec = deployment.spec
    return {
        labels.WORKLOAD_UID: spec.workload_ref.uid,
        labels.WORKLOAD_NAME: spec.workload_ref.name,
        labels.DEPLOYMENT_UID: deployment.metadata.uid,
        labels.DEPLOYMENT_NAME: deployment.metadata.name,
        labels.PLACEMENT_NAME: spec.placement_name,
        labels.CITY_CODE: spec.city_code,
    }


# How long an instance must be Ready when nothing checks that its program serves.
UNCHECKED_MIN_READY_S = 5


@dataclass(frozen=True, slots=True)
class MinReady:
    """The rule when an instance counts as available: at ``now`` it is Ready for ``seconds``.

    ``unobserved`` are uids of instances whose recorded readiness no driver has confirmed since this
    process started. A rollout neither counts them as available nor replaces them as broken.
    """

    seconds: int = 0
    now: str = EPOCH
    unobserved: frozenset[str] = frozenset()

    def is_available(self, instance: Instance) -> bool:
        since = _ready_since(instance)
        return since is not None and not self.remaining_s(since)

    def seconds_until_available(self, instance: Instance) -> float | None:
        """Return None if the instance is not Ready or is already available."""
        if not self.seconds:
            return None
        since = _ready_since(instance)
        return None if since is None else self.remaining_s(since) or None

    def remaining_s(self, ready_since: str) -> float:
        """Return how long an instance still has to be Ready; 0 if it is available."""
        return remaining_s(ready_since, self.seconds, self.now) if self.seconds else 0.0


def _ready_since(instance: Instance) -> str | None:
    """Return since when the instance has been Ready; None if it is not Ready or is terminating."""
    ready = find_condition(instance.status.conditions, READY)
    if ready is None or ready.status != TRUE or instance.is_terminating:
        return None
    return ready.last_transition_time


# With this rule an instance is available as soon as it is Ready.
WITHOUT_DELAY = MinReady()


def min_ready_seconds(deployment: WorkloadDeployment, *, simulated: bool) -> int:
    """Return how long an instance of the deployment must be Ready to be available.

    ``simulated`` is True if the cell runs the simulated driver, where Ready is sufficient.
    """
    configured = deployment.spec.scale_settings.min_ready_seconds
    if configured is not None:
        return configured
    if simulated or has_readiness_check(deployment.spec.template):
        return 0
    return UNCHECKED_MIN_READY_S


def has_readiness_check(template: InstanceTemplate) -> bool:
    """Return True if drivers check that the program serves: by readiness probe or TCP port."""
    return any(
        container.readiness_probe is not None
        or any(port.protocol == "TCP" for port in container.ports)
        for container in template.spec.runtime.sandbox.containers
    )


NO_SLOT = -1
_ORDINAL_DIGITS_MAX = 9


@dataclass(frozen=True, slots=True)
class Slots:
    """The instances of a deployment by ordinal.

    ``by_ordinal`` contains all instances with an ordinal, wanted or not. ``serving``, ``ready`` and
    ``available`` are the ordinals in that state; each set is a subset of the one before.
    ``unslotted`` are the instances without an ordinal. ``unobserved`` are the ordinals whose
    recorded readiness no driver has confirmed.
    """

    by_ordinal: dict[int, Instance]
    serving: frozenset[int]
    ready: frozenset[int]
    available: frozenset[int]
    unslotted: tuple[Instance, ...]
    unobserved: frozenset[int] = frozenset()


def ordinal(instance: Instance) -> int:
    """Return the number at the end of the name, or NO_SLOT."""
    return _number_at_end(instance.metadata.name)


def is_slot_name(deployment_name: str, name: str) -> bool:
    """Return True if ``name`` is the deployment's name and a decimal ordinal without leading zeros.

    The ordinal may exceed the replica count, because scaling down takes time.
    """
    return _slot_of(deployment_name, name) != NO_SLOT


def _slot_of(deployment_name: str, name: str) -> int:
    number = _number_at_end(name)
    is_slot = number != NO_SLOT and name == instance_name(deployment_name, number)
    return number if is_slot and deployment_name else NO_SLOT


def _number_at_end(name: str) -> int:
    text = name.rpartition("-")[2]
    is_number = text.isascii() and text.isdecimal() and len(text) <= _ORDINAL_DIGITS_MAX
    return int(text) if is_number else NO_SLOT


def slots_of(
    deployment_name: str, instances: Iterable[Instance], min_ready: MinReady = WITHOUT_DELAY
) -> Slots:
    """Assign instances to slots. The result does not depend on the order of ``instances``."""
    found: dict[int, Instance] = {}
    unslotted: list[Instance] = []
    for instance in instances:
        number = _slot_of(deployment_name, instance.metadata.name)
        if number == NO_SLOT:
            unslotted.append(instance)
        else:
            found[number] = instance
    return build_slots(
        found, sorted(unslotted, key=lambda instance: instance.metadata.name), min_ready
    )


def build_slots(
    by_ordinal: dict[int, Instance],
    unslotted: Iterable[Instance],
    min_ready: MinReady = WITHOUT_DELAY,
) -> Slots:
    by_ordinal = {number: by_ordinal[number] for number in sorted(by_ordinal)}
    serving, ready, available, unobserved = set[int](), set[int](), set[int](), set[int]()
    for number, instance in by_ordinal.items():
        # The Ready condition is searched once: a pass reads thousands of instances.
        condition = find_condition(instance.status.conditions, READY)
        if instance.metadata.uid in min_ready.unobserved:
            unobserved.add(number)
        if _service_state(instance, condition) is not ServiceState.SERVING:
            continue
        serving.add(number)
        if condition is not None and condition.status == TRUE:
            ready.add(number)
            if number not in unobserved and not min_ready.remaining_s(
                condition.last_transition_time
            ):
                available.add(number)
    return Slots(
        by_ordinal,
        frozenset(serving),
        frozenset(ready),
        frozenset(available),
        tuple(unslotted),
        frozenset(unobserved),
    )


def is_ready(instance: Instance) -> bool:
    return is_true(instance.status.conditions, READY)


class ServiceState(Enum):
    """Whether rollouts and their disruption budget count an instance as serving."""

    SERVING = "Serving"
    DOWN = "Down"
    UNOBSERVED = "Unobserved"


def service_state(instance: Instance) -> ServiceState:
    """Return whether the instance serves.

    If Ready became Unknown, the instance probably still serves: its driver has restarted and has
    not observed the machine yet. If Ready was Unknown from the beginning, or is missing, no driver
    has observed the machine. An instance with scheduling gates that is not Ready is down, because
    its machine is started only when no gate is left.
    """
    return _service_state(instance, find_condition(instance.status.conditions, READY))


def _service_state(instance: Instance, ready: Condition | None) -> ServiceState:
    if instance.is_terminating or (ready is not None and ready.status == FALSE):
        return ServiceState.DOWN
    if ready is not None and ready.status == TRUE:
        return ServiceState.SERVING
    if has_gates(instance):
        return ServiceState.DOWN
    became_unknown = ready is not None and ready.last_transition_time != EPOCH
    return ServiceState.SERVING if became_unknown else ServiceState.UNOBSERVED


def is_observed_not_ready(instance: Instance) -> bool:
    """Return True if the instance was observed not to serve, so its removal disrupts nothing."""
    return service_state(instance) is ServiceState.DOWN


def has_gates(instance: Instance) -> bool:
    return bool(instance.spec.controller.scheduling_gates)


def wanted_replicas(deployment: WorkloadDeployment) -> int:
    return 0 if deployment.is_terminating else deployment.spec.scale_settings.min_replicas


_template_fields = attrgetter(*TemplateSpec.__struct_fields__)


def is_current(instance: Instance, current_hash: str, template: TemplateSpec) -> bool:
    """Return True if both the recorded hash and the spec of the instance match the template.

    The spec is compared as well, because users can edit the spec of an instance by hand.
    """
    same_hash = instance.spec.controller.template_hash == current_hash
    return same_hash and bool(_template_fields(instance.spec) == _template_fields(template))
