"""Plan a ServiceEntitlement: the access of a project to a service, and the objects it receives.

- The entitlement is the request of the project. The provider decides it on the ServiceConsumer of
  the project. The consumer is created once: if it is deleted later, the provider has ended access,
  and the project has to create a new entitlement.
- An Active entitlement creates grants, location bindings, and entitlements to the services that the
  service depends on. It is their controller owner. Objects without this owner are never changed or
  deleted.
- A grant that an operator changed is kept, also when the entitlement is deleted.
- A deleted entitlement first deletes its consumer, which terminates until no instance runs, and
  then its other objects. A consumer that is denied or suspended is kept (``_is_kept``). Workloads
  stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue, find_condition, set_conditions
from datum_compute.api.kinds import CONSUMER, ENTITLEMENT, GRANT, LOCATION_BINDING
from datum_compute.api.meta.fields import LocalReference, TypedObjectReference
from datum_compute.api.meta.objects import (
    ApiObject,
    KindInfo,
    ObjectMeta,
    controller_uid,
    owner_reference,
    ref_of,
)
from datum_compute.api.networking.location import Location, LocationBinding
from datum_compute.api.planes import PLATFORM, PlaneName, member_name
from datum_compute.api.quota import ResourceGrant
from datum_compute.api.services import (
    ACTIVE,
    DENIED,
    GATED,
    PENDING_APPROVAL,
    PROVISIONED,
    READY,
    REJECTED,
    SUSPENDED,
    AccessReason,
    Service,
    ServiceConfiguration,
    ServiceConsumer,
    ServiceConsumerSpec,
    ServiceEntitlement,
    ServiceEntitlementSpec,
    consumer_name,
)
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import (
    Action,
    Create,
    Delete,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from datum_compute.planning.platform.provisioned_objects import (
    plan_bindings,
    plan_grant_removal,
    plan_grants,
)
from datum_compute.planning.platform.services import is_published, suspension

# Interval of checks that all objects exist, in case an event was missed.
RESYNC_S = 300.0
# Interval of checks of a deleted entitlement while instances stop.
STOPPING_RECHECK_S = 1.0

Owned = TypeVar("Owned", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class EntitlementInputs:
    """An entitlement and the objects that its plan depends on.

    ``consumer`` is the ServiceConsumer of the project for this service.
    """

    plane: PlaneName
    entitlement: ServiceEntitlement
    service: Service | None
    configuration: ServiceConfiguration | None
    consumer: ServiceConsumer | None
    locations: Sequence[Location] = ()
    grants: Sequence[ResourceGrant] = ()
    bindings: Sequence[LocationBinding] = ()
    entitlements: Sequence[ServiceEntitlement] = ()  # all of the project
    offered: frozenset[str] = frozenset()  # names of all services that can be requested
    is_running: bool = False  # an instance of the service may run in the project

    @property
    def project(self) -> str:
        return member_name(self.plane)

    def select_owned(self, objects: Iterable[Owned]) -> list[Owned]:
        uid = self.entitlement.metadata.uid
        return [obj for obj in objects if controller_uid(obj) == uid]


def plan_entitlement(inputs: EntitlementInputs, now: str) -> Plan:
    entitlement = inputs.entitlement
    if entitlement.is_terminating:
        return _plan_removal(inputs)
    finalizer = labels.ENTITLEMENT_FINALIZER
    if missing := add_finalizer(inputs.plane, ENTITLEMENT, entitlement, finalizer):
        return Plan(tuple(missing))
    entitled = entitlement.status.entitled_at is not None
    if not is_published(inputs.service, entitled=entitled):
        name = entitlement.spec.service_ref.name
        message = f"The platform does not offer service {name}"
        return _report_phase(
            inputs, REJECTED, ConditionValue(FALSE, AccessReason.NOT_PUBLISHED, message), now
        )
    consumer = inputs.consumer
    if consumer is None and not _was_registered(entitlement):
        return Plan((Create(PLATFORM, CONSUMER, _build_consumer(inputs), "service requested"),))
    if consumer is not None and consumer.is_terminating and not _was_registered(entitlement):
        return Plan((Wait("an earlier consumer is terminating"),), requeue_after_s=RESYNC_S)
    if consumer is None or consumer.is_terminating:
        message = "The provider has ended access"
        return _report_phase(
            inputs, REJECTED, ConditionValue(FALSE, AccessReason.DENIED, message), now
        )
    if consumer.status.phase is None:
        return Plan((Wait("waiting for the provider"),), requeue_after_s=RESYNC_S)
    return _plan_from_consumer(inputs, consumer, now)


def _plan_from_consumer(inputs: EntitlementInputs, consumer: ServiceConsumer, now: str) -> Plan:
    """Report the state of the consumer, and provision the objects of an active entitlement."""
    ready = find_condition(consumer.status.conditions, READY)
    reason = ready.reason if ready is not None else AccessReason.REJECTED
    message = ready.message if ready is not None else ""
    if consumer.spec.suspended:
        verdict = ConditionValue(FALSE, AccessReason.REJECTED, suspension(consumer).message)
        return _report_phase(inputs, REJECTED, verdict, now)
    if consumer.status.phase == DENIED:
        return _report_phase(inputs, REJECTED, ConditionValue(FALSE, reason, message), now)
    if consumer.status.phase == PENDING_APPROVAL:
        return _report_phase(inputs, PENDING_APPROVAL, ConditionValue(FALSE, reason, message), now)
    missing = _plan_provisioning(inputs, now)
    verdict = ConditionValue(TRUE, reason, message)
    report = _report_phase(inputs, ACTIVE, verdict, now, is_provisioned=not missing)
    return Plan((*missing, *report.actions), requeue_after_s=RESYNC_S)


def _plan_provisioning(inputs: EntitlementInputs, now: str) -> list[Action]:
    """Plan the grants, bindings and dependencies that are missing or outdated."""
    service, configuration = inputs.service, inputs.configuration
    owner, plane = inputs.entitlement, inputs.plane
    actions: list[Action] = []
    if service is not None:
        actions += _plan_dependencies(inputs, service)
    if configuration is not None:
        actions += plan_grants(plane, owner, configuration, inputs.grants)
        actions += plan_bindings(
            plane, owner, configuration, inputs.locations, inputs.bindings, now
        )
    return actions


def _plan_dependencies(inputs: EntitlementInputs, service: Service) -> list[Action]:
    existing = {entitlement.metadata.name for entitlement in inputs.entitlements}
    required = [dependency.service_ref.name for dependency in service.spec.dependencies]
    owner = inputs.entitlement
    return [
        Create(
            inputs.plane,
            ENTITLEMENT,
            _build_dependency(owner, name),
            f"{service.metadata.name} depends on it",
        )
        for name in dict.fromkeys(required)
        if name not in existing and name in inputs.offered
    ]


def _build_dependency(owner: ServiceEntitlement, service: str) -> ServiceEntitlement:
    return ServiceEntitlement(
        metadata=ObjectMeta(
            name=service,
            labels={labels.DEPENDENCY_OF: owner.metadata.name},
            owner_references=[owner_reference(owner, ENTITLEMENT)],
            finalizers=[labels.ENTITLEMENT_FINALIZER],
        ),
        spec=ServiceEntitlementSpec(service_ref=LocalReference(name=service)),
    )


def _build_consumer(inputs: EntitlementInputs) -> ServiceConsumer:
    service = inputs.service
    assert service is not None, "only a published service has consumers"
    project = inputs.project
    return ServiceConsumer(
        metadata=ObjectMeta(name=consumer_name(service.spec.service_name, project)),
        spec=ServiceConsumerSpec(
            service_ref=LocalReference(name=service.metadata.name),
            consumer_project_ref=LocalReference(name=project),
        ),
    )


def _was_registered(entitlement: ServiceEntitlement) -> bool:
    """Return True if the entitlement had a consumer before."""
    ready = find_condition(entitlement.status.conditions, READY)
    return ready is not None and ready.reason != AccessReason.NOT_PUBLISHED


# --- status


def _report_phase(
    inputs: EntitlementInputs,
    phase: str,
    verdict: ConditionValue,
    now: str,
    *,
    is_provisioned: bool = False,
) -> Plan:
    entitlement, consumer = inputs.entitlement, inputs.consumer
    verdicts = {READY: verdict}
    if consumer is not None:
        verdicts[SUSPENDED] = suspension(consumer)
    if phase == ACTIVE:
        verdicts[PROVISIONED] = _provisioned_verdict(is_provisioned=is_provisioned)
    old, service = entitlement.status, inputs.service
    dependency_of = entitlement.metadata.labels.get(labels.DEPENDENCY_OF, "")
    status = msgspec.structs.replace(
        old,
        phase=phase,
        origin="Dependency" if dependency_of else "Direct",
        dependency_of=dependency_of,
        entitled_at=old.entitled_at or (now if phase == ACTIVE else None),
        service_name=service.spec.service_name if service is not None else old.service_name,
        provisioned_resources=_provisioned_resources(inputs),
        conditions=set_conditions(
            old.conditions, verdicts, generation=entitlement.metadata.generation, now=now
        ),
        observed_generation=entitlement.metadata.generation,
    )
    report = plan_status(inputs.plane, ENTITLEMENT, entitlement, status)
    return Plan(tuple(report), requeue_after_s=RESYNC_S)


def _provisioned_verdict(*, is_provisioned: bool) -> ConditionValue:
    if is_provisioned:
        return ConditionValue(
            TRUE, "Provisioned", "Quota and locations of the service are provisioned"
        )
    return ConditionValue(
        FALSE, "Provisioning", "Quota and locations of the service are being provisioned"
    )


def _provisioned_resources(inputs: EntitlementInputs) -> list[TypedObjectReference]:
    kinds: tuple[tuple[KindInfo[Any], Sequence[ApiObject]], ...] = (
        (GRANT, inputs.grants),
        (LOCATION_BINDING, inputs.bindings),
    )
    return [
        TypedObjectReference(
            api_group=kind.group,
            kind=kind.kind,
            name=obj.metadata.name,
            namespace=obj.metadata.namespace,
        )
        for kind, objects in kinds
        for obj in sorted(inputs.select_owned(objects), key=ref_of)
    ]


# --- removal


def _plan_removal(inputs: EntitlementInputs) -> Plan:
    plane, entitlement = inputs.plane, inputs.entitlement
    consumer = inputs.consumer
    if consumer is not None and not _is_kept(inputs, consumer):
        deletion = Delete(
            PLATFORM, CONSUMER, ref_of(consumer), consumer.metadata.uid, "no longer requested"
        )
        wait = Wait("waiting for the instances to stop before access ends")
        deletions: tuple[Action, ...] = () if consumer.is_terminating else (deletion,)
        return Plan((*deletions, wait), requeue_after_s=30.0)
    if inputs.is_running:
        return Plan(
            (Wait("waiting for the instances to stop"),), requeue_after_s=STOPPING_RECHECK_S
        )
    dependents: tuple[tuple[KindInfo[Any], Sequence[ApiObject]], ...] = (
        (ENTITLEMENT, inputs.entitlements),
        (LOCATION_BINDING, inputs.bindings),
    )
    grants = [grant for grant in inputs.select_owned(inputs.grants) if not grant.is_terminating]
    actions: list[Action] = [plan_grant_removal(plane, grant) for grant in grants]
    actions += [
        Delete(plane, kind, ref_of(obj), obj.metadata.uid, "its entitlement is deleted")
        for kind, objects in dependents
        for obj in inputs.select_owned(objects)
        if not obj.is_terminating
    ]
    released = drop_finalizer(plane, ENTITLEMENT, entitlement, labels.ENTITLEMENT_FINALIZER)
    return Plan((*actions, *released))


def _is_kept(inputs: EntitlementInputs, consumer: ServiceConsumer) -> bool:
    """Return True if the consumer is kept when its entitlement is deleted.

    Otherwise a project could end a suspension by deleting and recreating its entitlement. The same
    holds for a denial, if the service needs no approval.
    """
    if consumer.is_terminating:
        return False
    service = inputs.service
    needs_approval = service is not None and service.spec.enablement_policy.mode == GATED
    approval = consumer.spec.approval
    is_denied = approval is not None and approval.decision == "Denied"
    return consumer.spec.suspended or (is_denied and not needs_approval)
