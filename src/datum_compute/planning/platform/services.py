"""What a Service and its configuration say of themselves, and what a configuration registers.

Whether a project may use a service: what its provider has decided, and what else matters.

Rules kept here:
- A denial holds in every mode; an approval is needed only where the provider is asked.
- Who came in while nobody was asked stays in when the service becomes gated.
- An approval that is taken back is a denial: it was granted, and is no longer.
- A service that is not there proves nothing: what was decided stays decided.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    find_condition,
    with_verdicts,
)
from datum_compute.api.entitlements import (
    ACTIVE,
    DENIED,
    GATED,
    PENDING_APPROVAL,
    PUBLISHED,
    READY,
    SUSPENDED,
    AccessReason,
)
from datum_compute.api.kinds import CONSUMER, REGISTRATION, SERVICE, SERVICE_CONFIGURATION
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.plane import PLATFORM
from datum_compute.api.resourceregistration import ResourceRegistration, ResourceRegistrationSpec
from datum_compute.api.service import Service
from datum_compute.api.serviceconfiguration import (
    QuotaLimit,
    ServiceConfiguration,
    ServiceConfigurationStatus,
)
from datum_compute.api.serviceconsumer import ServiceConsumer
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Action, Create, Plan

DRAFT, RETIRED = "Draft", "Retired"

# The index of consumers and configurations by service.
BY_SERVICE = "service"


def index_service(obj: ServiceConsumer | ServiceConfiguration) -> tuple[str]:
    return (obj.spec.service_ref.name,)


def is_published(service: Service | None, *, entitled: bool = False) -> bool:
    """Whether projects may use it. A deprecated one takes no new consumers and keeps the old."""
    if service is None or service.is_terminating:
        return False
    return service.spec.phase == PUBLISHED or (entitled and service.spec.phase == "Deprecated")


def plan_service(service: Service, now: str) -> Plan:
    if service.is_terminating:
        return Plan()
    phase = service.spec.phase
    published = Verdict(TRUE if phase == PUBLISHED else FALSE, phase, f"The service is {phase}")
    said = {READY: Verdict(TRUE, "ServiceReady", "The service is described"), PUBLISHED: published}
    status = msgspec.structs.replace(
        service.status,
        conditions=_told(service.status.conditions, said, service.metadata.generation, now),
        published_at=service.status.published_at or (now if phase == PUBLISHED else None),
        observed_generation=service.metadata.generation,
    )
    return Plan(tuple(plan_status(PLATFORM, SERVICE, service, status)))


def plan_configuration(
    configuration: ServiceConfiguration,
    service: Service | None,
    registered: Sequence[ResourceRegistration],
    now: str,
) -> Plan:
    """What is counted for the service is registered, unless somebody has registered it."""
    if configuration.is_terminating:
        return Plan()
    name = configuration.spec.service_ref.name
    actions: list[Action] = []
    if service is None:
        verdict = Verdict(FALSE, "ServiceNotFound", f"There is no service {name}")
    else:
        verdict = Verdict(TRUE, "ConfigurationReady", "What the service needs is there")
        known = {registration.spec.resource_type for registration in registered}
        if configuration.spec.phase != DRAFT:
            actions += [
                Create(PLATFORM, REGISTRATION, _registration(name, limit), "counted by the service")
                for limit in configuration.spec.quota.limits
                if limit.metric not in known
            ]
    generation = configuration.metadata.generation
    told = _told(configuration.status.conditions, {READY: verdict}, generation, now)
    status = ServiceConfigurationStatus(conditions=told, observed_generation=generation)
    report = plan_status(PLATFORM, SERVICE_CONFIGURATION, configuration, status)
    return Plan((*actions, *report))


def _registration(service: str, limit: QuotaLimit) -> ResourceRegistration:
    """As the public documents have it: counted one by one, claimed by whom it is granted to."""
    return ResourceRegistration(
        metadata=ObjectMeta(name=f"{service}-{limit.name}"),
        spec=ResourceRegistrationSpec(
            consumer_type=limit.consumer_type,
            type="Entity",
            resource_type=limit.metric,
            description=limit.display_name,
            base_unit=limit.unit or "1",
            display_unit=limit.unit or "1",
            claiming_resources=[limit.consumer_type],
        ),
    )


def _told(
    conditions: Sequence[Condition], said: dict[str, Verdict], generation: int, now: str
) -> list[Condition]:
    return with_verdicts(conditions, said, generation=generation, now=now)


_PHASES = {TRUE: ACTIVE, FALSE: DENIED}


def plan_consumer(consumer: ServiceConsumer, service: Service | None, now: str) -> Plan:
    if consumer.is_terminating or service is None:
        return Plan()
    verdict = _decision(consumer, service)
    pending = verdict.reason == AccessReason.PENDING_APPROVAL
    phase = PENDING_APPROVAL if pending else _PHASES[verdict.status]
    generation = consumer.metadata.generation
    told = with_verdicts(
        consumer.status.conditions,
        {READY: verdict, SUSPENDED: suspension(consumer)},
        generation=generation,
        now=now,
    )
    status = msgspec.structs.replace(
        consumer.status,
        phase=phase,
        entitled_at=consumer.status.entitled_at or (now if phase == ACTIVE else None),
        service_name=service.spec.service_name,
        conditions=told,
        observed_generation=generation,
    )
    return Plan(tuple(plan_status(PLATFORM, CONSUMER, consumer, status)))


def suspension(consumer: ServiceConsumer) -> Verdict:
    if consumer.spec.suspended:
        return Verdict(TRUE, AccessReason.SUSPENDED, "The provider has suspended the project")
    return Verdict(FALSE, AccessReason.NOT_SUSPENDED, "The project is not suspended")


def _decision(consumer: ServiceConsumer, service: Service) -> Verdict:
    approval, title = consumer.spec.approval, service.spec.display_name or service.metadata.name
    if service.spec.phase == RETIRED:
        return Verdict(FALSE, AccessReason.NOT_PUBLISHED, f"{title} is no longer offered")
    if approval is not None and approval.decision == "Denied":
        said = approval.message or "The provider has denied access"
        return Verdict(FALSE, AccessReason.DENIED, said)
    if approval is not None:
        said = approval.message or "The provider has approved access"
        return Verdict(TRUE, AccessReason.APPROVED, said)
    if service.spec.enablement_policy.mode != GATED or _came_in_freely(consumer):
        return Verdict(TRUE, AccessReason.ACTIVE, f"{title} is enabled")
    if consumer.status.entitled_at is not None:
        return Verdict(FALSE, AccessReason.DENIED, "The provider has withdrawn its approval")
    waiting = f"The provider of {title} has not decided yet"
    return Verdict(FALSE, AccessReason.PENDING_APPROVAL, waiting)


def _came_in_freely(consumer: ServiceConsumer) -> bool:
    ready = find_condition(consumer.status.conditions, READY)
    return ready is not None and (ready.status, ready.reason) == (TRUE, AccessReason.ACTIVE)
