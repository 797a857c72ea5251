"""The events that wake the controllers of instances. Their own status writes do not."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.instance import (
    NETWORK_READY,
    PROGRAMMED,
    QUOTA_GRANTED,
    READY,
    Instance,
    SchedulingGate,
)
from datum_compute.api.compute.server import Server, ServerSpec, ServerStatus
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionStatus,
    ConditionValue,
    make_condition,
    with_condition,
)
from datum_compute.api.kinds import NETWORK_CONTEXT, SERVER
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.networking.network import NetworkContext, NetworkContextSpec
from datum_compute.controllers.context import Context
from datum_compute.controllers.network import networks
from datum_compute.controllers.quota import claims as claimrelease
from datum_compute.controllers.workload import endpoints, instance, machine
from datum_compute.controllers.workload import server as provisioner
from datum_compute.planning.federation.instances import should_publish
from datum_compute.planning.initial_status import INITIAL_STATUS_S
from datum_compute.planning.rollout.gates import observed_ready
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import NOW, a_deployment, an_instance, refused_by_quota


def is_reconciled(
    controller: Controller[Context], kind: KindInfo[Any], old: ApiObject, new: ApiObject
) -> bool:
    """Return True if the filters of the controller pass an update."""
    edges = (edge for edge in controller.edges if edge.kind is kind and edge.enqueues)
    return any(edge.matches(ObjectChange(old, new)) for edge in edges)


SPEC = ServerSpec(instance_type="datumcloud/d1-standard-2", template_hash="", containers=[])
CLEAR: dict[str, ConditionStatus] = {NETWORK_READY: TRUE, QUOTA_GRANTED: TRUE}


def gated(statuses: dict[str, ConditionStatus] | None = None, *others: str) -> Instance:
    """Return an instance with gates and conditions of these statuses."""
    bare = an_instance(0, ready=False)
    names = ("Network", "Quota", *others)
    control = replace(
        bare.spec.controller, scheduling_gates=[SchedulingGate(name=name) for name in names]
    )
    statuses_by_type = {PROGRAMMED: UNKNOWN, READY: UNKNOWN, **(statuses or {})}
    conditions = [
        make_condition(type_, ConditionValue(status, "Pending", ""), generation=1, now=NOW)
        for type_, status in statuses_by_type.items()
    ]
    return replace(
        bare,
        spec=replace(bare.spec, controller=control),
        status=replace(bare.status, conditions=conditions),
    )


def without(found: Instance, type_: str) -> Instance:
    kept = [c for c in found.status.conditions if c.type != type_]
    return replace(found, status=replace(found.status, conditions=kept))


def a_server(phase: str = "", generation: int = 1) -> Server:
    metadata = ObjectMeta(name="web-0", namespace="default", generation=generation)
    observed = generation if phase else 0
    status = ServerStatus(phase=phase or "Pending", observed_generation=observed)  # type: ignore[arg-type]
    return Server(metadata=metadata, spec=SPEC, status=status)


def test_recording_that_all_gates_are_clear_causes_no_reconcile() -> None:
    assert not instance.concerns_readiness(gated(), gated(CLEAR))
    assert instance.concerns_readiness(gated(), gated({**CLEAR, QUOTA_GRANTED: FALSE}))
    assert instance.concerns_readiness(gated(), gated(CLEAR, "example.com/unknown"))


def test_an_instance_without_gates_is_reconciled_if_ready_is_not_current() -> None:
    made = an_instance(0)
    conditions = with_condition(made.status.conditions, observed_ready(made, NOW))
    ready = replace(made, status=replace(made.status, conditions=conditions))
    assert not instance.concerns_readiness(gated(CLEAR), ready)
    assert instance.concerns_readiness(ready, without(ready, PROGRAMMED))
    assert instance.concerns_readiness(ready, without(ready, READY))
    assert instance.concerns_readiness(ready, an_instance(0, terminating=True))


def test_the_provisioner_reconciles_when_gates_are_removed_and_ignores_its_own_status() -> None:
    ready = an_instance(0)
    assert provisioner.concerns_machine(gated(CLEAR), ready)
    assert not provisioner.concerns_machine(an_instance(0, ready=False), ready)
    assert not provisioner.concerns_machine(gated(), gated(CLEAR))
    assert provisioner.concerns_machine(ready, an_instance(0, terminating=True))


def test_a_new_gated_instance_needs_no_machine_unless_a_problem_was_reported() -> None:
    assert not provisioner.needs_machine(gated())
    assert provisioner.needs_machine(refused_by_quota(an_instance(0)))
    assert provisioner.needs_machine(an_instance(0, ready=False))
    failed = gated({PROGRAMMED: FALSE})
    conditions = [replace(c, reason="PendingQuota") for c in failed.status.conditions]
    stale = replace(failed, status=replace(failed.status, conditions=conditions))
    assert provisioner.needs_machine(stale), "the report may have to be revoked after a restart"


def test_a_change_of_a_deployment_wakes_the_claims_of_released_slots() -> None:
    released_slots = claimrelease.released_slots
    leaving = a_deployment(replicas=3, terminating=True)
    assert released_slots(a_deployment(replicas=3), a_deployment(replicas=1)) == range(1, 3)
    assert not released_slots(a_deployment(replicas=1), a_deployment(replicas=3))
    assert released_slots(a_deployment(replicas=3), leaving) == range(3)
    assert released_slots(a_deployment(replicas=3), None) == range(3)
    assert released_slots(leaving, None) == range(3)
    assert not released_slots(leaving, leaving), "a status update releases no slot"


def test_a_server_is_reconciled_until_its_machine_is_settled() -> None:
    (controller,) = (c for c in machine.CONTROLLERS if c.name == "machine")
    assert not is_reconciled(controller, SERVER, a_server("Pending"), a_server("Running"))
    assert is_reconciled(controller, SERVER, a_server(), a_server("Pending"))
    assert is_reconciled(controller, SERVER, a_server("Running"), a_server("Failed"))
    changed = a_server("Running", generation=2)
    assert is_reconciled(controller, SERVER, a_server("Running"), changed)


def test_a_copy_of_a_new_instance_is_created_with_its_first_result_or_after_a_delay() -> None:
    def is_published(instance: Instance, age_s: float = 0.0) -> bool:
        metadata = replace(instance.metadata, creation_timestamp=NOW)
        now = timestamp(parse_timestamp(NOW) + age_s)
        return should_publish(replace(instance, metadata=metadata), now)

    assert not is_published(gated())
    assert not is_published(gated({READY: FALSE}))
    assert is_published(gated(), INITIAL_STATUS_S)
    assert is_published(refused_by_quota(an_instance(0)))
    assert not is_published(an_instance(0, ready=False))
    assert is_published(an_instance(0))
    assert is_published(an_instance(0, ready=False, terminating=True))


def test_bindings_are_not_woken_by_holders_of_their_context() -> None:
    spec = NetworkContextSpec(network=LocalReference(name="n"), location=LocalReference(name="l"))
    context = NetworkContext(metadata=ObjectMeta(name="n-l", namespace="default"), spec=spec)
    held = replace(context.metadata, annotations={labels.LAST_HOLDER: "web"})

    def wakes(new: NetworkContext) -> bool:
        return is_reconciled(networks.BINDING_CONTROLLER, NETWORK_CONTEXT, context, new)

    assert not wakes(replace(context, metadata=held))
    assert wakes(replace(context, spec=replace(spec, mtu=1400)))
    going = replace(context.metadata, deletion_timestamp=NOW)
    assert wakes(replace(context, metadata=going))


def test_the_published_ports_are_updated_when_a_crashed_machine_accepts_connections() -> None:
    crashed = a_server("Failed")
    recovering = replace(crashed, status=replace(crashed.status, recovering=True))
    assert is_reconciled(endpoints.CONTROLLER, SERVER, crashed, recovering)
    assert is_reconciled(endpoints.CONTROLLER, SERVER, recovering, crashed)
    assert is_reconciled(endpoints.CONTROLLER, SERVER, crashed, a_server("Running"))
    assert not is_reconciled(endpoints.CONTROLLER, SERVER, recovering, a_server("Running"))
    assert not is_reconciled(endpoints.CONTROLLER, SERVER, a_server("Pending"), crashed)
