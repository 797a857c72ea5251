"""Plan the status of Services, their configurations and their consumers.

A configuration registers the resources that are counted for its service. A consumer records whether
its project may use the service:

- A denial applies in every mode; an approval is needed only if the service is gated.
- A project that was enabled without approval stays enabled when the service becomes gated.
- An approval that is withdrawn counts as a denial.
- While the service does not exist, the last decision stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    ConditionValue,
    find_condition,
    set_conditions,
)
from datum_compute.api.kinds import CONSUMER, REGISTRATION, SERVICE, SERVICE_CONFIGURATION
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import PLATFORM
from datum_compute.api.quota import ResourceRegistration, ResourceRegistrationSpec
from datum_compute.api.services import (
    ACTIVE,
    DENIED,
    GATED,
    PENDING_APPROVAL,
    PUBLISHED,
    READY,
    SUSPENDED,
    AccessReason,
    QuotaLimit,
    Service,
    ServiceConfiguration,
    ServiceConfigurationStatus,
    ServiceConsumer,
)
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Action, Create, Plan

DRAFT, RETIRED = "Draft", "Retired"

# The index of consumers and configurations by service.
BY_SERVICE = "service"


def index_service(obj: ServiceConsumer | ServiceConfiguration) -> tuple[str]:
    return (obj.spec.service_ref.name,)


def is_published(service: Service | None, *, entitled: bool = False) -> bool:
    """Return True if a project may use the service.

    A deprecated service may only be used by projects that were ``entitled`` before.
    """
    if service is None or service.is_terminating:
        return False
    return service.spec.phase == PUBLISHED or (entitled and service.spec.phase == "Deprecated")


def plan_service(service: Service, now: str) -> Plan:
    if service.is_terminating:
        return Plan()
    phase = service.spec.phase
    published = ConditionValue(
        TRUE if phase == PUBLISHED else FALSE, phase, f"The service is {phase}"
    )
    verdicts = {
        READY: ConditionValue(TRUE, "ServiceReady", "The service is ready"),
        PUBLISHED: published,
    }
    status = msgspec.structs.replace(
        service.status,
        conditions=set_conditions(
            service.status.conditions, verdicts, generation=service.metadata.generation, now=now
        ),
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
    """Register the resources of the service that are not registered yet."""
    if configuration.is_terminating:
        return Plan()
    name = configuration.spec.service_ref.name
    actions: list[Action] = []
    if service is None:
        verdict = ConditionValue(FALSE, "ServiceNotFound", f"Service {name} does not exist")
    else:
        verdict = ConditionValue(TRUE, "ConfigurationReady", "The configuration is applied")
        known = {registration.spec.resource_type for registration in registered}
        if configuration.spec.phase != DRAFT:
            actions += [
                Create(
                    PLATFORM, REGISTRATION, _registration(name, limit), "resource of the service"
                )
                for limit in configuration.spec.quota.limits
                if limit.metric not in known
            ]
    generation = configuration.metadata.generation
    conditions = set_conditions(
        configuration.status.conditions, {READY: verdict}, generation=generation, now=now
    )
    status = ServiceConfigurationStatus(conditions=conditions, observed_generation=generation)
    report = plan_status(PLATFORM, SERVICE_CONFIGURATION, configuration, status)
    return Plan((*actions, *report))


def _registration(service: str, limit: QuotaLimit) -> ResourceRegistration:
    """Return the registration as the public documentation describes it."""
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


# --- consumers

_PHASES = {TRUE: ACTIVE, FALSE: DENIED}


def plan_consumer(consumer: ServiceConsumer, service: Service | None, now: str) -> Plan:
    if consumer.is_terminating or service is None:
        return Plan()
    verdict = _access_verdict(consumer, service)
    pending = verdict.reason == AccessReason.PENDING_APPROVAL
    phase = PENDING_APPROVAL if pending else _PHASES[verdict.status]
    generation = consumer.metadata.generation
    conditions = set_conditions(
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
        conditions=conditions,
        observed_generation=generation,
    )
    return Plan(tuple(plan_status(PLATFORM, CONSUMER, consumer, status)))


def suspension(consumer: ServiceConsumer) -> ConditionValue:
    if consumer.spec.suspended:
        return ConditionValue(
            TRUE, AccessReason.SUSPENDED, "The provider has suspended the project"
        )
    return ConditionValue(FALSE, AccessReason.NOT_SUSPENDED, "The project is not suspended")


def _access_verdict(consumer: ServiceConsumer, service: Service) -> ConditionValue:
    approval, title = consumer.spec.approval, service.spec.display_name or service.metadata.name
    if service.spec.phase == RETIRED:
        return ConditionValue(FALSE, AccessReason.NOT_PUBLISHED, f"{title} is no longer offered")
    if approval is not None and approval.decision == "Denied":
        message = approval.message or "The provider has denied access"
        return ConditionValue(FALSE, AccessReason.DENIED, message)
    if approval is not None:
        message = approval.message or "The provider has approved access"
        return ConditionValue(TRUE, AccessReason.APPROVED, message)
    if service.spec.enablement_policy.mode != GATED or _is_enabled_without_approval(consumer):
        return ConditionValue(TRUE, AccessReason.ACTIVE, f"{title} is enabled")
    if consumer.status.entitled_at is not None:
        return ConditionValue(FALSE, AccessReason.DENIED, "The provider has withdrawn its approval")
    message = f"The provider of {title} has not decided yet"
    return ConditionValue(FALSE, AccessReason.PENDING_APPROVAL, message)


def _is_enabled_without_approval(consumer: ServiceConsumer) -> bool:
    ready = find_condition(consumer.status.conditions, READY)
    return ready is not None and (ready.status, ready.reason) == (TRUE, AccessReason.ACTIVE)
