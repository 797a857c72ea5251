"""The trail of requests: who changed what, who was refused, who read secrets.

An event has names and numbers only: never a body, a query, a header or a token. The server hands
each event to a sink that must not wait; where it goes from there is the sink's affair.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from datum_compute.api.http import Response
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User

REQUEST_ID_HEADER = "audit-id"
_CHANGES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_REFUSED = (401, 403)
_SENSITIVE = "secrets"
_TEXT_MAX = 512  # names are shorter; what a stranger sends may not be


class AuditEvent(msgspec.Struct, frozen=True):
    """One request. Fields that say nothing are empty."""

    time_s: float
    request_id: str
    user: str
    impersonated_user: str
    plane: str
    verb: str
    group: str
    resource: str
    subresource: str
    namespace: str
    name: str
    path: str
    code: int
    reason: str
    duration_s: float


AuditSink = Callable[[AuditEvent], None]


def discard(_event: AuditEvent) -> None:
    """A sink that keeps nothing."""


class AuditContext(msgspec.Struct):
    """What has become known of a request so far."""

    request_id: str
    time_s: float
    plane: PlaneName | None = None
    wanted: Attributes | None = None
    behind: User | None = None
    user: User | None = None
    stores: bool = False
    reason: str = ""


class Auditor:
    def __init__(
        self, sink: AuditSink, clock: Callable[[], float], new_request_id: Callable[[], str]
    ) -> None:
        self._sink = sink
        self._clock = clock
        self._new_request_id = new_request_id

    def begun(self) -> AuditContext:
        return AuditContext(self._new_request_id(), self._clock())

    def ended(self, trail: AuditContext, response: Response) -> Response:
        """The response with the id of its request; kept in the trail if it is worth that."""
        if _is_worth_keeping(trail, response.status):
            self._sink(_event(trail, response, self._clock()))
        headers = {**response.headers, REQUEST_ID_HEADER: trail.request_id}
        return Response(
            response.status,
            response.body,
            response.content_type,
            headers,
            response.stream,
            pieces=response.pieces,
        )


def _is_worth_keeping(trail: AuditContext, code: int) -> bool:
    if code in _REFUSED:
        return True
    if trail.wanted is None:
        return False
    if trail.wanted.resource == _SENSITIVE and not trail.wanted.group:
        return True
    return trail.stores and trail.wanted.verb in _CHANGES


def _event(trail: AuditContext, response: Response, now_s: float) -> AuditEvent:
    wanted = trail.wanted or Attributes("")
    behind, user = trail.behind, trail.user
    borrowed = user.name if user is not None and user is not behind and user != behind else ""
    return AuditEvent(
        time_s=trail.time_s,
        request_id=trail.request_id,
        user=_short(behind.name if behind is not None else ""),
        impersonated_user=_short(borrowed),
        plane=trail.plane or "",
        verb=_short(wanted.verb),
        group=wanted.group,
        resource=wanted.resource,
        subresource=wanted.subresource,
        namespace=_short(wanted.namespace),
        name=_short(wanted.name or response.created),
        path=_short(wanted.path),
        code=response.status,
        reason=trail.reason,
        duration_s=max(0.0, now_s - trail.time_s),
    )


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 3] + "..."
