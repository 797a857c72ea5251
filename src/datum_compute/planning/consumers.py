"""Whether a project may use a service: what its provider has decided, and what else matters.

Rules kept here:
- A denial holds in every mode; an approval is needed only where the provider is asked.
- Who came in while nobody was asked stays in when the service becomes gated.
- An approval that is taken back is a denial: it was granted, and is no longer.
- A service that is not there proves nothing: what was decided stays decided.
"""

from __future__ import annotations

import msgspec

from datum_compute.api.conditions import FALSE, TRUE, Verdict, find_condition
from datum_compute.api.entitlements import (
    ACTIVE,
    DENIED,
    GATED,
    PENDING_APPROVAL,
    READY,
    SUSPENDED,
    AccessReason,
)
from datum_compute.api.kinds import CONSUMER
from datum_compute.api.plane import PLATFORM
from datum_compute.api.service import Service
from datum_compute.api.serviceconsumer import ServiceConsumer
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Plan
from datum_compute.planning.platform.services import RETIRED
from datum_compute.planning.verdicts import with_verdicts

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
