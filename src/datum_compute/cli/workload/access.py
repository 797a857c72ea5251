"""Reads whether the project may use compute, asks for it, and keeps commands out that need it.

``ensure_access`` stands before what changes workloads. It lets pass where nobody manages access
(a platform without entitlements, a catalogue that does not list compute, or one API server that is
everything): the server decides.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from datum_compute.api.conditions import find_condition
from datum_compute.api.errors import AlreadyExists, Forbidden, Invalid, NotFound
from datum_compute.api.kinds import ENTITLEMENT, SERVICE
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.quota import SERVICE as SERVICE_OBJECT
from datum_compute.api.quota import SERVICE_NAME
from datum_compute.api.services import Service, ServiceEntitlement, ServiceEntitlementSpec
from datum_compute.cli.connect.session import Session
from datum_compute.cli.errors import (
    BuildCommand,
    DeniedError,
    NotEnabledError,
    PendingError,
    UnavailableError,
    UsageError,
)
from datum_compute.cli.render.listing import age_since
from datum_compute.cli.render.prompt import confirm

# --- Whether the project may use compute, read from its entitlement. Pure, and in plain words
# Three calm states (not requested, on its way, active) and the refusals. The server says why, the
# command line says what next; names of internal objects are never shown.


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


def refusal(access: Access, command: BuildCommand, place: str, now: float) -> UsageError | None:
    """The error that a command ends with that needs the access; None when there is no reason to."""
    said = f" The provider says: {access.message}" if access.message else ""
    status, request = command("access", "status"), command("access", "request")
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
                f"Ask again: {command('access', 'renew')}",
            )


def next_step(access: Access, command: BuildCommand) -> str:
    match access.state:
        case AccessState.NOT_REQUESTED:
            return command("access", "request")
        case AccessState.PROCESSING | AccessState.PENDING:
            return command("access", "request", "--wait")
        case AccessState.DENIED | AccessState.REVOKED:
            return command("access", "renew")
        case AccessState.ACTIVE | AccessState.UNKNOWN:
            return command("deploy")
        case AccessState.UNAVAILABLE:
            return ""


# --- access gate


# A request younger than this is waited for; an older one is reported at once.
_FRESH_S = 120.0


async def read_access(session: Session) -> Access:
    if session.platform is session.client:
        return Access(AccessState.UNKNOWN)  # no platform beside it that could be asked
    try:
        entitlements = (await session.client.list(ENTITLEMENT)).items
    except (NotFound, Forbidden):
        return Access(AccessState.UNKNOWN)
    service = await _service(session)
    name = service.metadata.name if service else SERVICE_OBJECT
    found = next((e for e in entitlements if e.spec.service_ref.name == name), None)
    if found is None and service is None:
        return Access(AccessState.UNKNOWN)
    return Access(
        state=classified(found),
        message=message_of(found),
        requested_at=(found.metadata.creation_timestamp or "") if found else "",
        service=name,
        description=service.spec.description if service else "",
        gated=service is None or service.spec.enablement_policy.mode == "GatedByProvider",
        entitlement=found,
    )


async def _service(session: Session) -> Service | None:
    """Compute as the catalogue of the platform has it; None where it cannot be known."""
    try:
        services = (await session.platform.list(SERVICE)).items
    except (NotFound, Forbidden):
        return None
    published = [s for s in services if s.spec.phase in ("Published", "Deprecated")]
    by_name = [s for s in published if s.spec.service_name == SERVICE_NAME]
    return next(iter(by_name), None)


async def ensure_access(session: Session) -> None:
    """Return where the project may go on; otherwise one of the errors 9 to 13."""
    access = await read_access(session)
    environment = session.environment
    if access.state is AccessState.NOT_REQUESTED:
        access = await _requested_unless_declined(session, access)
    elif access.state is AccessState.PROCESSING and _is_fresh(access, environment.now()):
        access = await first_answer(session, access)
    refused = refusal(access, environment.command, session.target_name, environment.now())
    if refused is not None:
        raise refused


async def _requested_unless_declined(session: Session, access: Access) -> Access:
    """Self-service is enabled unasked, and said; what a provider decides about only on a yes."""
    if access.gated:
        if not session.environment.may_ask:
            return access
        session.print_note(
            f"{TITLE} is not enabled for {session.target_name}; its provider has to approve."
        )
        confirm(session.environment, f"Ask for {TITLE} for {session.target_name}?")
    else:
        session.print_note(f"Enabling {TITLE} for {session.target_name}.")
    return await request_access(session, access)


async def request_access(session: Session, access: Access, message: str = "") -> Access:
    """Ask; that somebody has asked already is all the same. Waits for the first answer."""
    entitlement = ServiceEntitlement(
        metadata=ObjectMeta(name=access.service),
        spec=ServiceEntitlementSpec(
            service_ref=LocalReference(name=access.service), request_message=message
        ),
    )
    try:
        with suppress(AlreadyExists):
            await session.client.create(ENTITLEMENT, entitlement)
    except Invalid as error:
        raise UnavailableError(f"{TITLE} cannot be enabled for {session.target_name}.") from error
    return await first_answer(session, access)


async def first_answer(session: Session, access: Access) -> Access:
    """The access once the platform has looked at the request; none yet is no error."""
    return await await_state(
        session, access, {AccessState.PROCESSING}, session.environment.timeouts.first_status_s
    )


async def await_state(
    session: Session, access: Access, passing: set[AccessState], timeout_s: float
) -> Access:
    """The access when it has left the passing states, or as it is when the time is up."""
    with suppress(TimeoutError):
        await session.client.wait(
            ENTITLEMENT,
            Ref("", access.service),
            lambda found: classified(found) not in passing,
            timeout_s=timeout_s,
        )
    return await read_access(session)


def _is_fresh(access: Access, now: float) -> bool:
    return bool(access.requested_at) and now - parse_timestamp(access.requested_at) < _FRESH_S


def late(access: Access, place: str, waited: str, hint: str) -> UsageError:
    said = f" The provider says: {access.message}" if access.message else ""
    return PendingError(f"{TITLE} is not active for {place} after {waited}.{said}", hint)
