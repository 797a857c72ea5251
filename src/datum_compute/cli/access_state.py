"""Whether the project may use compute, read from its entitlement. Pure, and in plain words.

Three calm states (not requested, on its way, active) and the refusals. The server says why, the
command line says what next; names of internal objects are never shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from datum_compute.api.conditions import find_condition
from datum_compute.api.services import ServiceEntitlement
from datum_compute.cli.errors import (
    DeniedError,
    NotEnabledError,
    PendingError,
    UnavailableError,
    UsageError,
)
from datum_compute.cli.times import age_since

READY = "Ready"
NOT_PUBLISHED = "ServiceNotPublished"
TITLE = "Compute"


class AccessState(StrEnum):
    UNKNOWN = "CatalogUnavailable"  # this platform has no such thing as entitlements
    NOT_REQUESTED = "NotRequested"
    PROCESSING = "Processing"
    PENDING = "PendingApproval"
    ACTIVE = "Active"
    DENIED = "Denied"
    REVOKED = "Revoked"
    UNAVAILABLE = "Unavailable"


WORDS = {
    AccessState.UNKNOWN: "not managed on this platform",
    AccessState.NOT_REQUESTED: "not enabled; nobody has asked for it yet",
    AccessState.PROCESSING: "requested, being activated",
    AccessState.PENDING: "requested, waiting for approval",
    AccessState.ACTIVE: "enabled",
    AccessState.DENIED: "denied",
    AccessState.REVOKED: "revoked",
    AccessState.UNAVAILABLE: "not offered on this platform",
}


@dataclass(frozen=True, slots=True)
class Access:
    """``gated``: the provider decides about requests, or nobody knows whether he does."""

    state: AccessState
    message: str = ""
    requested_at: str = ""
    service: str = "compute"
    description: str = ""
    gated: bool = True
    entitlement: ServiceEntitlement | None = None


def classified(entitlement: ServiceEntitlement | None) -> AccessState:
    """The state an entitlement stands for; None is one that there is not."""
    if entitlement is None:
        return AccessState.NOT_REQUESTED
    status = entitlement.status
    ready = find_condition(status.conditions, READY)
    if status.phase is None or ready is None:
        return AccessState.PROCESSING
    match status.phase:
        case "Active":
            return AccessState.ACTIVE
        case "PendingApproval":
            return AccessState.PENDING
    if ready.reason == NOT_PUBLISHED:
        return AccessState.UNAVAILABLE
    return AccessState.REVOKED if status.entitled_at else AccessState.DENIED


def message_of(entitlement: ServiceEntitlement | None) -> str:
    said = find_condition(entitlement.status.conditions, READY) if entitlement else None
    return said.message if said else ""


def refusal(access: Access, program: str, place: str, now: float) -> UsageError | None:
    """The error that a command ends with that needs the access; None when there is no reason to."""
    said = f" The provider says: {access.message}" if access.message else ""
    status, request = f"{program} access status", f"{program} access request"
    match access.state:
        case AccessState.ACTIVE | AccessState.UNKNOWN:
            return None
        case AccessState.NOT_REQUESTED:
            return NotEnabledError(f"{TITLE} is not enabled for {place}.", f"Ask for it: {request}")
        case AccessState.PROCESSING | AccessState.PENDING:
            age = age_since(access.requested_at, now)
            since = "" if age == "-" else f" {age} ago"
            return PendingError(
                f"{TITLE} was requested for {place}{since} and is not active yet.{said}",
                f"Nothing to do but wait; this command is safe to run again. See: {status}",
            )
        case AccessState.UNAVAILABLE:
            return UnavailableError(f"{TITLE} is not offered on this platform.{said}")
        case AccessState.DENIED | AccessState.REVOKED:
            word = WORDS[access.state]
            return DeniedError(
                f"Access of {place} to {TITLE} was {word}.{said}",
                f"Ask again: {program} access renew",
            )


def next_step(access: Access, program: str) -> str:
    match access.state:
        case AccessState.NOT_REQUESTED:
            return f"{program} access request"
        case AccessState.PROCESSING | AccessState.PENDING:
            return f"{program} access request --wait"
        case AccessState.DENIED | AccessState.REVOKED:
            return f"{program} access renew"
        case AccessState.ACTIVE | AccessState.UNKNOWN:
            return f"{program} deploy"
        case AccessState.UNAVAILABLE:
            return ""
