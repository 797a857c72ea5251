"""Access to the gateway, and its audit log.

``LocalGatewayAuthorizer`` sends a SelfSubjectAccessReview with the credentials of the caller to the
API server of the process, so that the same roles apply as for all other requests. The audit log
contains denied requests, and start and end of each command in an instance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from msgspec.structs import replace

from datum_compute.api.errors import (
    ApiError,
    Forbidden,
    ServiceUnavailable,
    Unauthorized,
    Unreachable,
    from_status,
)
from datum_compute.api.gateway import GROUP, INSTANCES
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import decode, encode
from datum_compute.api.planes import PlaneName, path_prefix, plane_role
from datum_compute.api.reviews import (
    SUBJECT_ACCESS_REVIEW,
    TOKEN_REVIEW,
    AccessSpec,
    ResourceAttributes,
    SubjectAccessReview,
    TokenReview,
    TokenReviewSpec,
)
from datum_compute.client.client import Client
from datum_compute.server.access.audit import REQUEST_ID_HEADER, AuditedUsers, AuditEvent, AuditSink

Dispatch = Callable[[Request], Coroutine[Any, Any, Response]]

IMAGE = "image"
DRIVERS = "drivers"
LOGS = "logs"
_ACCESS_REVIEW = ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
_IMPERSONATE = "impersonate-"
_CREDENTIAL_PREFIXES = ("authorization", _IMPERSONATE)


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """The operation of a request and its instance. ``name`` is empty for a whole namespace."""

    plane: PlaneName
    namespace: str
    name: str
    operation: str

    @property
    def verb(self) -> str:
        return "create" if self.operation in ("exec", IMAGE) else "get"

    @property
    def resource(self) -> str:
        """The resource of the access check.

        Image checks need ``create`` on workloads (project) or workloaddeployments (cell).
        """
        if self.operation != IMAGE:
            return INSTANCES
        return "workloads" if plane_role(self.plane) == "project" else "workloaddeployments"

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def subresource(self) -> str:
        if self.operation in (IMAGE, DRIVERS):
            return ""
        return "log" if self.operation == LOGS else self.operation


class GatewayAuthorizer(Protocol):
    """``LocalGatewayAuthorizer`` for the API server of this process, else
    ``RemoteGatewayAuthorizer``."""

    async def authorize(self, request: Request, target: GatewayTarget) -> str:
        """Raise unless the caller has access. Return the id of the check for the audit log."""
        ...

    async def record_denial(
        self, request: Request, target: GatewayTarget, error: ApiError
    ) -> None: ...

    async def record(
        self,
        request: Request,
        target: GatewayTarget,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None: ...


def forbidden_error(target: GatewayTarget, user: str) -> Forbidden:
    return Forbidden(
        f'{target.resource}.{GROUP} "{target.name}" is forbidden: {user} cannot {target.verb} '
        f'resource "{target.full_resource}" in the namespace "{target.namespace}"',
        name=target.name,
        group=GROUP,
        kind=target.resource,
    )


def build_audit_event(
    target: GatewayTarget,
    user: str,
    now_s: float,
    since_s: float | None,
    *,
    code: int,
    reason: str,
    request_id: str,
) -> AuditEvent:
    """Names are shortened: they come from the request and can be of any length."""
    return AuditEvent(
        time_s=now_s if since_s is None else since_s,
        request_id=request_id,
        user=user,
        impersonated_user="",
        plane=target.plane,
        verb=target.verb,
        group=GROUP,
        resource=target.resource,
        subresource=target.subresource,
        namespace=target.namespace[:253],
        name=target.name[:253],
        path="",
        code=code,
        reason=reason,
        duration_s=0.0 if since_s is None else max(0.0, now_s - since_s),
    )


@dataclass(frozen=True, slots=True)
class LocalGatewayAuthorizer:
    """Authorizes requests by the roles of the API server of this process.

    The access check is a SelfSubjectAccessReview with the credentials of the caller, and not a call
    of the authorizer: as a request it takes its turn in flow control, has a request id, a span and
    metrics, and an unauthenticated caller is recorded in the audit log. ``identify`` returns the
    users of a request for the audit events of the gateway.
    """

    api_server: Dispatch
    identify: Callable[[Request, PlaneName], AuditedUsers]
    unix_s: Callable[[], float]
    audit: AuditSink

    async def authorize(self, request: Request, target: GatewayTarget) -> str:
        version, name, plural = _ACCESS_REVIEW
        attributes = {
            "group": GROUP,
            "resource": target.resource,
            "subresource": target.subresource,
            "verb": target.verb,
            "namespace": target.namespace,
            "name": target.name,
        }
        review = {"apiVersion": version, "kind": name, "spec": {"resourceAttributes": attributes}}
        headers = {n: v for n, v in request.headers.items() if n.startswith(_CREDENTIAL_PREFIXES)}
        response = await self.api_server(
            Request(
                "POST",
                f"{path_prefix(target.plane)}/apis/{version}/{plural}",
                headers={**headers, "content-type": JSON, "accept": JSON},
                body=encode(review),
                certificate_pem=request.certificate_pem,
                peer=request.peer,
            )
        )
        found = decode(response.body)
        if response.status >= 400:
            raise from_status(response.status, found)
        if not found.get("status", {}).get("allowed"):
            raise forbidden_error(target, "you")
        return response.headers.get(REQUEST_ID_HEADER, "")

    async def record_denial(self, request: Request, target: GatewayTarget, error: ApiError) -> None:
        """Record a 403. The API server has recorded a 401 already."""
        if isinstance(error, Forbidden):
            await self.record(request, target, code=error.code, reason=error.reason)

    async def record(
        self,
        request: Request,
        target: GatewayTarget,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None:
        """Write one event to the audit log."""
        users = self.identify(request, target.plane)
        event = build_audit_event(
            target,
            users.authenticated,
            self.unix_s(),
            since_s,
            code=code,
            reason=reason,
            request_id=request_id,
        )
        self.audit(replace(event, impersonated_user=users.impersonated))


# --- The gateway of a manager: the API server of each plane decides
# A TokenReview authenticates the token of the caller, and a SubjectAccessReview authorizes the
# user. The account of the manager creates both. Permissions are cached for ``ALLOWED_CACHE_S``,
# because log readers and running commands repeat their checks; denials are not cached. Only bearer
# tokens are supported, and no impersonation. The audit log is the log of the process, which
# clusters collect.


ALLOWED_CACHE_S = 10.0
_CACHED_MAX = 1000
_BEARER = "bearer "

_CacheKey = tuple[str, GatewayTarget]  # digest of a token, and the target


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteGatewayAuthorizer:
    """``client_of`` returns the client of the manager for a plane. ``elapsed_s`` is monotonic."""

    client_of: Callable[[PlaneName], Client]
    unix_s: Callable[[], float]
    elapsed_s: Callable[[], float]
    audit: AuditSink
    _allowed: dict[_CacheKey, tuple[float, Caller]] = field(default_factory=dict)

    async def authorize(self, request: Request, target: GatewayTarget) -> str:
        token = _bearer_token(request)
        key = _cache_key(token, target)
        until_s, cached = self._allowed.get(key, (0.0, None))
        is_current = cached is not None and self.elapsed_s() < until_s
        caller = cached if is_current and cached else await self._authenticate(token, target.plane)
        if request.peer is not None:
            request.peer.identify(caller.name, reserved=False)
        if is_current:
            return ""
        await self._review_access(caller, target)
        self._allowed.pop(key, None)
        while len(self._allowed) >= _CACHED_MAX:
            del self._allowed[next(iter(self._allowed))]
        self._allowed[key] = (self.elapsed_s() + ALLOWED_CACHE_S, caller)
        return ""

    async def record_denial(self, request: Request, target: GatewayTarget, error: ApiError) -> None:
        """Record a 401 without a user name, and without another TokenReview."""
        if isinstance(error, Forbidden):
            await self.record(request, target, code=error.code, reason=error.reason)
        elif isinstance(error, Unauthorized):
            self._write_event(target, "", code=error.code, reason=error.reason)

    async def record(
        self,
        request: Request,
        target: GatewayTarget,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None:
        """Write one event to the audit log."""
        name = await self._user_name(request, target)
        self._write_event(
            target, name, code=code, reason=reason, request_id=request_id, since_s=since_s
        )

    def _write_event(
        self,
        target: GatewayTarget,
        name: str,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None:
        event = build_audit_event(
            target, name, self.unix_s(), since_s, code=code, reason=reason, request_id=request_id
        )
        self.audit(event)

    async def _user_name(self, request: Request, target: GatewayTarget) -> str:
        """Return the name of the user, also if the token or the API server does not work by now.

        Users who were authorized are cached.
        """
        try:
            token = _bearer_token(request)
            _, cached = self._allowed.get(_cache_key(token, target), (0.0, None))
            return (cached or await self._authenticate(token, target.plane)).name
        except (ApiError, Unreachable):
            return ""

    async def _authenticate(self, token: str, plane: PlaneName) -> Caller:
        review = TokenReview(spec=TokenReviewSpec(token=token))
        with _map_own_denials():
            status = (await self.client_of(plane).create(TOKEN_REVIEW, review)).status
        user = status.get("user", {})
        if not status.get("authenticated") or not user.get("username"):
            raise Unauthorized("the API server of the plane does not know this token")
        extra = user.get("extra") or {}
        return Caller(
            name=user["username"],
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            extra=tuple((key, tuple(values)) for key, values in extra.items()),
        )

    async def _review_access(self, caller: Caller, target: GatewayTarget) -> None:
        spec = AccessSpec(
            resource_attributes=ResourceAttributes(
                namespace=target.namespace,
                verb=target.verb,
                group=GROUP,
                resource=target.resource,
                subresource=target.subresource,
                name=target.name,
            ),
            user=caller.name,
            uid=caller.uid,
            groups=list(caller.groups),
            extra={key: list(values) for key, values in caller.extra},
        )
        review = SubjectAccessReview(spec=spec)
        with _map_own_denials():
            reviewed = await self.client_of(target.plane).create(SUBJECT_ACCESS_REVIEW, review)
        if not reviewed.status.get("allowed"):
            raise forbidden_error(target, caller.name)


@contextmanager
def _map_own_denials() -> Iterator[None]:
    """Raise ServiceUnavailable if the gateway itself lacks a permission."""
    try:
        yield
    except (Forbidden, Unauthorized) as error:
        why = f"the gateway may not create the reviews that check your access: {error.message}"
        raise ServiceUnavailable(why) from error


def _cache_key(token: str, target: GatewayTarget) -> _CacheKey:
    return hashlib.sha256(token.encode()).hexdigest(), target


def _bearer_token(request: Request) -> str:
    if any(name.startswith(_IMPERSONATE) for name in request.headers):
        raise Forbidden(
            "this gateway does not support impersonation; remove the Impersonate-* headers",
            group=GROUP,
            kind=INSTANCES,
        )
    header = request.headers.get("authorization", "")
    if not header.lower().startswith(_BEARER) or not header[len(_BEARER) :].strip():
        raise Unauthorized(
            "this gateway needs a bearer token; it does not support client certificates"
        )
    return header[len(_BEARER) :].strip()
