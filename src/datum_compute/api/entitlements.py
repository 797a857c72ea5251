"""Words that services, their consumers and entitlements agree on, and the names made from them."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from datum_compute.api.serviceconsumer import ServiceConsumer

ACTIVE = "Active"
PENDING_APPROVAL = "PendingApproval"
REJECTED = "Rejected"  # an entitlement
DENIED = "Denied"  # a consumer
GATED = "GatedByProvider"
# Conditions.
READY, SUSPENDED, PROVISIONED, PUBLISHED = "Ready", "Suspended", "Provisioned", "Published"


class AccessReason(StrEnum):
    """Why an entitlement or a consumer is what it is; clients branch on these."""

    ACTIVE = "EntitlementActive"
    PENDING_APPROVAL = "EntitlementPendingApproval"
    REJECTED = "EntitlementRejected"
    NOT_PUBLISHED = "ServiceNotPublished"
    APPROVED = "ConsumerApproved"
    DENIED = "ConsumerDenied"
    SUSPENDED = "ProjectSuspended"
    NOT_SUSPENDED = "ProjectActive"


def consumer_name(service_name: str, project: str) -> str:
    """Of the ServiceConsumer of a project, by the name of the service over all releases."""
    return f"sc-{_digest(f'{service_name}/{project}')}"


def grant_name(service: str, project: str, limit: str) -> str:
    """Of the ResourceGrant that an entitlement writes for one limit of the service."""
    return f"rg-{_digest(f'{service}/{project}/{limit}')}"


def is_open(consumer: ServiceConsumer | None) -> bool:
    """Whether the project may use the service now."""
    if consumer is None or consumer.is_terminating or consumer.spec.suspended:
        return False
    return consumer.status.phase == ACTIVE


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).digest()[:8].hex()
