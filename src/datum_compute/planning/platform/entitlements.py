"""ServiceEntitlement -> whether its project may use the service, and what it gets with it.

Rules kept here:
- The provider's side is a ServiceConsumer; what is said there is what counts. It is made once: one
  that somebody has removed since is access that was taken back, and a new request is needed.
- An Active entitlement writes grants and location bindings, and entitlements to what the service
  needs. They are its own (it is their controller); nothing else is ever changed or removed.
- A grant that an operator has changed stays as it is, also when the entitlement goes.
- When it is deleted the consumer goes first, because workloads leave before that is gone, then what
  was written. A provider's word against the project outlives the request (``_is_kept``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, Verdict, find_condition, with_verdicts
from datum_compute.api.entitlements import (
    ACTIVE,
    DENIED,
    GATED,
    PENDING_APPROVAL,
    PROVISIONED,
    READY,
    REJECTED,
    SUSPENDED,
    AccessReason,
    consumer_name,
)
from datum_compute.api.fields import LocalReference, ObjectReference
from datum_compute.api.kinds import CONSUMER, ENTITLEMENT, GRANT, LOCATION_BINDING
from datum_compute.api.location import Location
from datum_compute.api.locationbinding import LocationBinding
from datum_compute.api.meta import (
    ApiObject,
    KindInfo,
    ObjectMeta,
    controller_uid,
    owner_reference,
    ref_of,
)
from datum_compute.api.plane import PLATFORM, PlaneName, member_name
from datum_compute.api.resourcegrant import ResourceGrant
from datum_compute.api.service import Service
from datum_compute.api.serviceconfiguration import ServiceConfiguration
from datum_compute.api.serviceconsumer import ServiceConsumer, ServiceConsumerSpec
from datum_compute.api.serviceentitlement import ServiceEntitlement, ServiceEntitlementSpec
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

# Whether all that was written is still there; what goes is seen, so this is for what was missed.
RESYNC_S = 300.0

Owned = TypeVar("Owned", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class EntitlementInputs:
    """An entitlement and everything around it. ``consumer`` is that of the project."""

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

    @property
    def project(self) -> str:
        return member_name(self.plane)

    def owned(self, objects: Iterable[Owned]) -> list[Owned]:
        uid = self.entitlement.metadata.uid
        return [obj for obj in objects if controller_uid(obj) == uid]


def plan_entitlement(requested: EntitlementInputs, now: str) -> Plan:
    entitlement = requested.entitlement
    if entitlement.is_terminating:
        return _plan_removal(requested)
    guard = add_finalizer(requested.plane, ENTITLEMENT, entitlement, labels.ENTITLEMENT_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    entitled = entitlement.status.entitled_at is not None
    if not is_published(requested.service, entitled=entitled):
        name = entitlement.spec.service_ref.name
        said = f"The platform does not offer a service {name} (any more)"
        return _report(requested, REJECTED, Verdict(FALSE, AccessReason.NOT_PUBLISHED, said), now)
    consumer = requested.consumer
    if consumer is None and not _was_registered(entitlement):
        return Plan((Create(PLATFORM, CONSUMER, _consumer(requested), "requested"),))
    if consumer is not None and consumer.is_terminating and not _was_registered(entitlement):
        return Plan((Wait("an earlier consumer is leaving"),), requeue_after_s=RESYNC_S)
    if consumer is None or consumer.is_terminating:
        said = "The provider has ended access"
        return _report(requested, REJECTED, Verdict(FALSE, AccessReason.DENIED, said), now)
    if consumer.status.phase is None:
        return Plan((Wait("the request is with the provider"),), requeue_after_s=RESYNC_S)
    return _follow(requested, consumer, now)


def _follow(requested: EntitlementInputs, consumer: ServiceConsumer, now: str) -> Plan:
    """The entitlement says what the consumer says."""
    ready = find_condition(consumer.status.conditions, READY)
    reason = ready.reason if ready is not None else AccessReason.REJECTED
    message = ready.message if ready is not None else ""
    if consumer.spec.suspended:
        said = Verdict(FALSE, AccessReason.REJECTED, suspension(consumer).message)
        return _report(requested, REJECTED, said, now)
    if consumer.status.phase == DENIED:
        return _report(requested, REJECTED, Verdict(FALSE, reason, message), now)
    if consumer.status.phase == PENDING_APPROVAL:
        return _report(requested, PENDING_APPROVAL, Verdict(FALSE, reason, message), now)
    written = _provisions(requested, now)
    said = Verdict(TRUE, reason, message)
    report = _report(requested, ACTIVE, said, now, is_written=not written)
    return Plan((*written, *report.actions), requeue_after_s=RESYNC_S)


def _provisions(requested: EntitlementInputs, now: str) -> list[Action]:
    """What is still to be written."""
    service, configuration = requested.service, requested.configuration
    owner, plane = requested.entitlement, requested.plane
    actions: list[Action] = []
    if service is not None:
        actions += _dependencies(requested, service)
    if configuration is not None:
        actions += plan_grants(plane, owner, configuration, requested.grants)
        actions += plan_bindings(
            plane, owner, configuration, requested.locations, requested.bindings, now
        )
    return actions


def _dependencies(requested: EntitlementInputs, service: Service) -> list[Action]:
    present = {entitlement.metadata.name for entitlement in requested.entitlements}
    needed = [dependency.service_ref.name for dependency in service.spec.dependencies]
    owner = requested.entitlement
    return [
        Create(
            requested.plane,
            ENTITLEMENT,
            _dependency(owner, name),
            f"{service.metadata.name} needs it",
        )
        for name in dict.fromkeys(needed)
        if name not in present and name in requested.offered
    ]


def _dependency(owner: ServiceEntitlement, service: str) -> ServiceEntitlement:
    return ServiceEntitlement(
        metadata=ObjectMeta(
            name=service,
            labels={labels.DEPENDENCY_OF: owner.metadata.name},
            owner_references=[owner_reference(owner, ENTITLEMENT)],
            finalizers=[labels.ENTITLEMENT_FINALIZER],
        ),
        spec=ServiceEntitlementSpec(service_ref=LocalReference(name=service)),
    )


def _consumer(requested: EntitlementInputs) -> ServiceConsumer:
    service = requested.service
    assert service is not None, "only of a service that is offered"
    project = requested.project
    return ServiceConsumer(
        metadata=ObjectMeta(name=consumer_name(service.spec.service_name, project)),
        spec=ServiceConsumerSpec(
            service_ref=LocalReference(name=service.metadata.name),
            consumer_project_ref=LocalReference(name=project),
        ),
    )


def _was_registered(entitlement: ServiceEntitlement) -> bool:
    """Whether there has been a consumer for it."""
    ready = find_condition(entitlement.status.conditions, READY)
    return ready is not None and ready.reason != AccessReason.NOT_PUBLISHED


# --- status


def _report(
    requested: EntitlementInputs,
    phase: str,
    verdict: Verdict,
    now: str,
    *,
    is_written: bool = False,
) -> Plan:
    entitlement, consumer = requested.entitlement, requested.consumer
    verdicts = {READY: verdict}
    if consumer is not None:
        verdicts[SUSPENDED] = suspension(consumer)
    if phase == ACTIVE:
        verdicts[PROVISIONED] = _provisioned(is_written=is_written)
    old, service = entitlement.status, requested.service
    needed_by = entitlement.metadata.labels.get(labels.DEPENDENCY_OF, "")
    status = msgspec.structs.replace(
        old,
        phase=phase,
        origin="Dependency" if needed_by else "Direct",
        dependency_of=needed_by,
        entitled_at=old.entitled_at or (now if phase == ACTIVE else None),
        service_name=service.spec.service_name if service is not None else old.service_name,
        provisioned_resources=_written(requested),
        conditions=with_verdicts(
            old.conditions, verdicts, generation=entitlement.metadata.generation, now=now
        ),
        observed_generation=entitlement.metadata.generation,
    )
    report = plan_status(requested.plane, ENTITLEMENT, entitlement, status)
    return Plan(tuple(report), requeue_after_s=RESYNC_S)


def _provisioned(*, is_written: bool) -> Verdict:
    if is_written:
        return Verdict(TRUE, "Provisioned", "Quota and locations of the service are there")
    return Verdict(FALSE, "Provisioning", "Quota and locations of the service are being written")


def _written(requested: EntitlementInputs) -> list[ObjectReference]:
    kinds: tuple[tuple[KindInfo[Any], Sequence[ApiObject]], ...] = (
        (GRANT, requested.grants),
        (LOCATION_BINDING, requested.bindings),
    )
    return [
        ObjectReference(
            api_group=kind.group,
            kind=kind.kind,
            name=obj.metadata.name,
            namespace=obj.metadata.namespace,
        )
        for kind, objects in kinds
        for obj in sorted(requested.owned(objects), key=ref_of)
    ]


# --- removal


def _plan_removal(requested: EntitlementInputs) -> Plan:
    plane, entitlement = requested.plane, requested.entitlement
    consumer = requested.consumer
    if consumer is not None and not _is_kept(requested, consumer):
        gone = Delete(
            PLATFORM, CONSUMER, ref_of(consumer), consumer.metadata.uid, "no longer requested"
        )
        waits = Wait("workloads leave before access ends")
        asked: tuple[Action, ...] = () if consumer.is_terminating else (gone,)
        return Plan((*asked, waits), requeue_after_s=30.0)
    made: tuple[tuple[KindInfo[Any], Sequence[ApiObject]], ...] = (
        (ENTITLEMENT, requested.entitlements),
        (LOCATION_BINDING, requested.bindings),
    )
    grants = [grant for grant in requested.owned(requested.grants) if not grant.is_terminating]
    actions: list[Action] = [plan_grant_removal(plane, grant) for grant in grants]
    actions += [
        Delete(plane, kind, ref_of(obj), obj.metadata.uid, "its entitlement is deleted")
        for kind, objects in made
        for obj in requested.owned(objects)
        if not obj.is_terminating
    ]
    released = drop_finalizer(plane, ENTITLEMENT, entitlement, labels.ENTITLEMENT_FINALIZER)
    return Plan((*actions, *released))


def _is_kept(requested: EntitlementInputs, consumer: ServiceConsumer) -> bool:
    """A project cannot shake off a suspension, or a denial where nobody would be asked again, by
    requesting anew."""
    if consumer.is_terminating:
        return False
    service = requested.service
    gated = service is not None and service.spec.enablement_policy.mode == GATED
    approval = consumer.spec.approval
    denied = approval is not None and approval.decision == "Denied"
    return consumer.spec.suspended or (denied and not gated)
