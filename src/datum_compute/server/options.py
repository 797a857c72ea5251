"""Options of ``ApiServer``, grouped by concern."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.server.access.audit import AuditSink, discard
from datum_compute.server.access.authentication import StaticTokens
from datum_compute.server.access.client_certificates import Certify
from datum_compute.server.access.service_accounts import TokenSigner
from datum_compute.server.access.watch_limits import PER_USER_MAX
from datum_compute.server.flowcontrol.control import FlowLimits, stopped_clock
from datum_compute.server.metrics import ServerMetrics
from datum_compute.telemetry.context import Tracer


def always_ready() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ServerEnvironment:
    """Clocks, ids and readiness. A simulation passes deterministic ones.

    ``work_clock`` measures how long requests occupy the event loop. With the default no request
    waits. Without ``new_request_id`` requests are numbered.
    """

    clock: Callable[[], float]  # Unix seconds
    new_uid: Callable[[], str]
    new_suffix: Callable[[], str]  # five characters for generateName
    new_request_id: Callable[[], str] | None = None
    work_clock: Callable[[], float] = stopped_clock
    is_ready: Callable[[], bool] = always_ready


@dataclass(frozen=True, slots=True)
class AuthenticationOptions:
    """``signer`` signs service account tokens, ``certify`` the certificates of cells that join.
    Without them the server rejects such requests."""

    static_tokens: StaticTokens
    signer: TokenSigner | None = None
    certify: Certify | None = None


@dataclass(frozen=True, slots=True)
class ServerTelemetry:
    metrics: ServerMetrics | None = None  # None creates one with its own registry
    tracer: Tracer | None = None
    audit: AuditSink = discard


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """``deprecation_grace_s`` is how long a deprecated instance type must stay usable."""

    watches_per_user_max: int = PER_USER_MAX  # on one plane
    flow_limits: FlowLimits | None = None
    deprecation_grace_s: float = DEPRECATION_GRACE_S
