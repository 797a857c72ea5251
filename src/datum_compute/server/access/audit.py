"""Audit events of writes, denied requests and reads of secrets.

An event contains names and numbers only: no body, query, header or token. The server passes each
event to a sink, which must not block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from datum_compute.api.http import Response
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.authentication import User

REQUEST_ID_HEADER = "audit-id"
_WRITE_VERBS = frozenset({"create", "update", "patch", "delete", "deletecollection"})
_DENIED = (401, 403)
_SENSITIVE_RESOURCE = "secrets"
_TEXT_LENGTH_MAX = 512  # longer than valid names; callers can send more


class AuditEvent(msgspec.Struct, frozen=True):
    """One request. Fields that do not apply are empty."""

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


class AuditedUsers(NamedTuple):
    """The names of the sender of a request, and of the user that it impersonates, if any."""

    authenticated: str
    impersonated: str


AuditSink = Callable[[AuditEvent], None]


def discard(_event: AuditEvent) -> None:
    """An audit sink that stores nothing."""


class AuditContext(msgspec.Struct):
    """What is known about a request so far. ``is_stored`` is True for kinds that the server stores:
    reviews, for example, are not."""

    request_id: str
    time_s: float
    plane: PlaneName | None = None
    attributes: Attributes | None = None
    authenticated_user: User | None = None
    user: User | None = None
    is_stored: bool = False
    reason: str = ""


class Auditor:
    def __init__(self, sink: AuditSink, clock: Callable[[], float]) -> None:
        self._sink = sink
        self._clock = clock

    def finish(self, audit: AuditContext, response: Response) -> Response:
        """Record the request if it is relevant. Return the response with the id of the request."""
        if _is_recorded(audit, response.status):
            self._sink(_build_event(audit, response, self._clock()))
        headers = {**response.headers, REQUEST_ID_HEADER: audit.request_id}
        return replace(response, headers=headers)


def _is_recorded(audit: AuditContext, code: int) -> bool:
    attributes = audit.attributes
    if code in _DENIED:
        return True
    if attributes is None:
        return False
    if attributes.resource == _SENSITIVE_RESOURCE and not attributes.group:
        return True
    return audit.is_stored and attributes.allowed_method and attributes.verb in _WRITE_VERBS


def _build_event(audit: AuditContext, response: Response, now_s: float) -> AuditEvent:
    attributes = audit.attributes or Attributes("")
    sender, user = audit.authenticated_user, audit.user
    is_impersonated = user is not None and user is not sender and user != sender
    # These come from the caller.
    user_name, impersonated_user, verb, namespace, name, path = [
        text if len(text) <= _TEXT_LENGTH_MAX else text[: _TEXT_LENGTH_MAX - 3] + "..."
        for text in (
            sender.name if sender is not None else "",
            user.name if user is not None and is_impersonated else "",
            attributes.verb,
            attributes.namespace,
            attributes.name or response.created,
            attributes.path,
        )
    ]
    return AuditEvent(
        time_s=audit.time_s,
        request_id=audit.request_id,
        user=user_name,
        impersonated_user=impersonated_user,
        plane=audit.plane or "",
        verb=verb,
        group=attributes.group,
        resource=attributes.resource,
        subresource=attributes.subresource,
        namespace=namespace,
        name=name,
        path=path,
        code=response.status,
        reason=audit.reason,
        duration_s=max(0.0, now_s - audit.time_s),
    )
