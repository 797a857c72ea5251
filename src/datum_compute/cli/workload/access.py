"""Access of the project to compute: read it, request it, and stop commands that need it.

Commands that change workloads call ``ensure_access`` first. It returns if the platform does not
manage access: it has no entitlements, or its catalog does not list compute, or the plane is an API
server of its own. Then the server decides.
"""

from __future__ import annotations

from collections.abc import Sequence
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

READY = "Ready"
NOT_PUBLISHED = "ServiceNotPublished"
TITLE = "Compute"
# Wait for the first status of a request that is younger than this; report an older one immediately.
_RECENT_REQUEST_S = 120.0


class AccessState(StrEnum):
    UNKNOWN = "CatalogUnavailable"  # the platform does not manage access
    NOT_REQUESTED = "NotRequested"
    PROCESSING = "Processing"
    PENDING = "PendingApproval"
    ACTIVE = "Active"
    DENIED = "Denied"
    REVOKED = "Revoked"
    UNAVAILABLE = "Unavailable"


STATE_TEXTS = {
    AccessState.UNKNOWN: "not managed on this platform",
    AccessState.NOT_REQUESTED: "not enabled; no request was made yet",
    AccessState.PROCESSING: "requested, being activated",
    AccessState.PENDING: "requested, waiting for approval",
    AccessState.ACTIVE: "enabled",
    AccessState.DENIED: "denied",
    AccessState.REVOKED: "revoked",
    AccessState.UNAVAILABLE: "not offered on this platform",
}


@dataclass(frozen=True, slots=True)
class Access:
    """``gated`` means that the provider approves requests, or that this is unknown."""

    state: AccessState
    message: str = ""
    requested_at: str = ""
    service: str = "compute"
    description: str = ""
    gated: bool = True
    entitlement: ServiceEntitlement | None = None


# --- states and texts, without requests


def classify_entitlement(entitlement: ServiceEntitlement | None) -> AccessState:
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


def access_error(
    access: Access, command: BuildCommand, place: str, now: float
) -> UsageError | None:
    """Return the error for a command that needs access; None if it may proceed."""
    provider = _provider_text(access)
    status, request = command("access", "status"), command("access", "request")
    match access.state:
        case AccessState.ACTIVE | AccessState.UNKNOWN:
            return None
        case AccessState.NOT_REQUESTED:
            return NotEnabledError(f"{TITLE} is not enabled for {place}.", f"Request it: {request}")
        case AccessState.PROCESSING | AccessState.PENDING:
            age = age_since(access.requested_at, now)
            since = "" if age == "-" else f" {age} ago"
            return PendingError(
                f"{TITLE} was requested for {place}{since} and is not active yet.{provider}",
                f"Wait, then run this command again. See: {status}",
            )
        case AccessState.UNAVAILABLE:
            return UnavailableError(f"{TITLE} is not offered on this platform.{provider}")
        case AccessState.DENIED | AccessState.REVOKED:
            return DeniedError(
                f"Access of {place} to {TITLE} was {STATE_TEXTS[access.state]}.{provider}",
                f"Request it again: {command('access', 'renew')}",
            )


def access_timeout_error(access: Access, place: str, waited: str, hint: str) -> UsageError:
    provider = _provider_text(access)
    return PendingError(f"{TITLE} is not active for {place} after {waited}.{provider}", hint)


def _provider_text(access: Access) -> str:
    return f" Message of the provider: {access.message}" if access.message else ""


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


# --- requests


async def ensure_access(session: Session) -> bool:
    """Return if the project may use compute; otherwise raise an error with exit code 9 to 13.

    Return False if it may only since now: this call enabled it, or waited until it was active.
    """
    entitlements = await _list_entitlements(session)
    if _is_active(_find_entitlement(entitlements, SERVICE_OBJECT)):
        return True  # the common case, without a request for the catalog
    access = await _read_access(session, entitlements)
    environment = session.environment
    first_state = access.state
    if access.state is AccessState.NOT_REQUESTED:
        access = await _enable_or_prompt(session, access)
    elif access.state is AccessState.PROCESSING and _is_recent(access, environment.now()):
        access = await wait_for_first_status(session, access)
    error = access_error(access, session.command, session.target_name, environment.now())
    if error is not None:
        raise error
    return access.state is first_state


async def print_missing_access(session: Session) -> bool:
    """Print one line and return True if the project has no access to compute."""
    entitlements = await _list_entitlements(session)
    if entitlements is None or _is_active(_find_entitlement(entitlements, SERVICE_OBJECT)):
        return False
    access = await _read_access(session, entitlements)
    if access.state in (AccessState.ACTIVE, AccessState.UNKNOWN):
        return False
    next_command = next_step(access, session.command)
    session.output.note(
        f"No access to {TITLE} in {session.target_name}: {STATE_TEXTS[access.state]}."
        + (f" Next: {next_command}" if next_command else "")
    )
    return True


async def read_access(session: Session) -> Access:
    return await _read_access(session, await _list_entitlements(session))


async def _read_access(
    session: Session, entitlements: Sequence[ServiceEntitlement] | None
) -> Access:
    if entitlements is None:
        return Access(AccessState.UNKNOWN)
    service = await _find_service(session)
    name = service.metadata.name if service else SERVICE_OBJECT
    entitlement = _find_entitlement(entitlements, name)
    if entitlement is None and service is None:
        return Access(AccessState.UNKNOWN)
    return Access(
        state=classify_entitlement(entitlement),
        message=_ready_message(entitlement),
        requested_at=(entitlement.metadata.creation_timestamp or "") if entitlement else "",
        service=name,
        description=service.spec.description if service else "",
        gated=service is None or service.spec.enablement_policy.mode == "GatedByProvider",
        entitlement=entitlement,
    )


async def _list_entitlements(session: Session) -> Sequence[ServiceEntitlement] | None:
    """Return None if the platform has no entitlements, or the user may not read them."""
    if session.platform is session.client:
        return None
    try:
        return (await session.client.list(ENTITLEMENT)).items
    except (NotFound, Forbidden):
        return None


def _find_entitlement(
    entitlements: Sequence[ServiceEntitlement] | None, service: str
) -> ServiceEntitlement | None:
    return next((e for e in entitlements or () if e.spec.service_ref.name == service), None)


def _is_active(entitlement: ServiceEntitlement | None) -> bool:
    return classify_entitlement(entitlement) is AccessState.ACTIVE


def _ready_message(entitlement: ServiceEntitlement | None) -> str:
    ready = find_condition(entitlement.status.conditions, READY) if entitlement else None
    return ready.message if ready else ""


async def _find_service(session: Session) -> Service | None:
    """Return compute as the catalog lists it; None if it does not, or cannot be read."""
    try:
        services = (await session.platform.list(SERVICE)).items
    except (NotFound, Forbidden):
        return None
    published = [s for s in services if s.spec.phase in ("Published", "Deprecated")]
    return next((s for s in published if s.spec.service_name == SERVICE_NAME), None)


async def _enable_or_prompt(session: Session, access: Access) -> Access:
    """Enable a self-service without a prompt. A request to the provider requires confirmation."""
    if access.gated:
        if not session.environment.may_ask:
            return access
        session.print_note(
            f"{TITLE} is not enabled for {session.target_name}; its provider has to approve."
        )
        confirm(session.environment, f"Request {TITLE} for {session.target_name}?")
    else:
        session.print_note(f"Enabling {TITLE} for {session.target_name}.")
    return await request_access(session, access)


async def request_access(session: Session, access: Access, message: str = "") -> Access:
    """Create the entitlement, or keep an existing one, and wait for its first status."""
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
    return await wait_for_first_status(session, access)


async def wait_for_first_status(session: Session, access: Access) -> Access:
    timeout_s = session.environment.timeouts.first_status_s
    return await wait_for_state(session, access, {AccessState.PROCESSING}, timeout_s)


async def wait_for_state(
    session: Session, access: Access, passing: set[AccessState], timeout_s: float
) -> Access:
    """Return the access when it has left the ``passing`` states, or at the timeout."""
    with suppress(TimeoutError):
        await session.client.wait(
            ENTITLEMENT,
            Ref("", access.service),
            lambda entitlement: classify_entitlement(entitlement) not in passing,
            timeout_s=timeout_s,
        )
    return await read_access(session)


def _is_recent(access: Access, now: float) -> bool:
    requested_at = access.requested_at
    return bool(requested_at) and now - parse_timestamp(requested_at) < _RECENT_REQUEST_S
