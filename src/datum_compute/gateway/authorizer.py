"""Who may ask the gateway what, and the trail of it.

Asked by a SelfSubjectAccessReview with the caller's own credentials, so the same roles decide that
decide about everything else. Refusals are kept in the audit log, and so is every command that is
run in an instance, when it begins and when it ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
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
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import JsonObject, decode, encode
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
from datum_compute.server.access.audit import REQUEST_ID_HEADER, AuditEvent, AuditSink

Dispatch = Callable[[Request], Coroutine[Any, Any, Response]]

IMAGE = "image"
DRIVERS = "drivers"
GROUP = "compute.datumapis.com"
_ACCESS = ("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
_WHO = ("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews")
_IMPERSONATE = "impersonate-"
_CREDENTIALS = ("authorization", _IMPERSONATE)


@dataclass(frozen=True, slots=True)
class GatewayTarget:
    """What is asked, of which instance."""

    plane: PlaneName
    namespace: str
    name: str
    what: str

    @property
    def verb(self) -> str:
        return "create" if self.what in ("exec", IMAGE) else "get"

    @property
    def resource(self) -> str:
        """About an image may ask who may deploy it: users workloads, the hub deployments."""
        if self.what != IMAGE:
            return "instances"
        return "workloads" if plane_role(self.plane) == "project" else "workloaddeployments"

    @property
    def full_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def subresource(self) -> str:
        return "" if self.what in (IMAGE, DRIVERS) else self.what


class Keeper(Protocol):
    """Of the door: ``LocalGatewayAuthorizer`` where the API server is of this process,
    ``RemoteGatewayAuthorizer`` where it is another one."""

    async def check(self, request: Request, about: GatewayTarget) -> str: ...

    async def refused(self, request: Request, about: GatewayTarget, error: ApiError) -> None: ...

    async def note(
        self,
        request: Request,
        about: GatewayTarget,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None: ...


def forbidden(about: GatewayTarget, whom: str) -> Forbidden:
    return Forbidden(
        f'{about.resource}.{GROUP} "{about.name}" is forbidden: {whom} cannot {about.verb} '
        f'resource "{about.full_resource}" in the namespace "{about.namespace}"'
    )


def audit_event(
    about: GatewayTarget,
    user: str,
    now_s: float,
    since_s: float | None,
    *,
    code: int,
    reason: str,
    request_id: str,
) -> AuditEvent:
    """Names are cut: whoever asks may have put anything into them."""
    return AuditEvent(
        time_s=now_s if since_s is None else since_s,
        request_id=request_id,
        user=user,
        impersonated_user="",
        plane=about.plane,
        verb=about.verb,
        group=GROUP,
        resource=about.resource,
        subresource=about.subresource,
        namespace=about.namespace[:253],
        name=about.name[:253],
        path="",
        code=code,
        reason=reason,
        duration_s=0.0 if since_s is None else max(0.0, now_s - since_s),
    )


@dataclass(frozen=True, slots=True)
class LocalGatewayAuthorizer:
    """``inner`` is the API server, which knows the callers and their roles."""

    inner: Dispatch
    unix_s: Callable[[], float]
    audit: AuditSink

    async def check(self, request: Request, about: GatewayTarget) -> str:
        """Raises if the caller may not; the id of the question for the trail."""
        attributes = {
            "group": GROUP,
            "resource": about.resource,
            "subresource": about.subresource,
            "verb": about.verb,
            "namespace": about.namespace,
            "name": about.name,
        }
        spec: JsonObject = {"resourceAttributes": attributes}
        answer, found = await self._review(request, about.plane, _ACCESS, spec)
        if not found.get("status", {}).get("allowed"):
            raise forbidden(about, "you")
        return answer.headers.get(REQUEST_ID_HEADER, "")

    async def refused(self, request: Request, about: GatewayTarget, error: ApiError) -> None:
        """Whoever was turned away by us; who has no name is in the trail of the server already."""
        if isinstance(error, Forbidden):
            await self.note(request, about, code=error.code, reason=error.reason)

    async def note(
        self,
        request: Request,
        about: GatewayTarget,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None:
        """One line of the trail."""
        now_s = self.unix_s()
        plain = {n: v for n, v in request.headers.items() if not n.startswith(_IMPERSONATE)}
        behind = await self._name(request, plain, about.plane)
        user = await self._name(request, request.headers, about.plane)
        event = audit_event(
            about, behind, now_s, since_s, code=code, reason=reason, request_id=request_id
        )
        self.audit(replace(event, impersonated_user=user if user != behind else ""))

    async def _name(self, request: Request, headers: Mapping[str, str], plane: PlaneName) -> str:
        """Whom the server takes the caller for; empty if for nobody any more."""
        asked = Request("POST", "/", headers=headers, certificate_pem=request.certificate_pem)
        try:
            _, found = await self._review(asked, plane, _WHO, {})
        except ApiError:
            return ""
        name: str = found.get("status", {}).get("userInfo", {}).get("username", "")
        return name

    async def _review(
        self, request: Request, plane: PlaneName, kind: tuple[str, str, str], spec: JsonObject
    ) -> tuple[Response, JsonObject]:
        version, name, plural = kind
        headers = {n: v for n, v in request.headers.items() if n.startswith(_CREDENTIALS)}
        body: JsonObject = {"apiVersion": version, "kind": name}
        answer = await self.inner(
            Request(
                "POST",
                f"{path_prefix(plane)}/apis/{version}/{plural}",
                headers={**headers, "content-type": JSON, "accept": JSON},
                body=encode({**body, "spec": spec} if spec else body),
                certificate_pem=request.certificate_pem,
                peer=request.peer,
            )
        )
        found = decode(answer.body)
        if answer.status >= 400:
            raise from_status(answer.status, found)
        return answer, found


# --- Who may ask the gateway of a manager: asked of the API server of the plane that is meant
# Whose token the caller brings is a TokenReview, what that user may do a SubjectAccessReview, both
# made by the manager's own account, so the roles of that plane decide. A yes holds for ``HOLDS_S``,
# since readers of logs and those who watch over commands ask again and again; a no is never kept. A
# caller is known by a bearer token only, and acts as nobody else. The trail goes to the log of the
# process, which is what clusters collect.


HOLDS_S = 10.0
_KEPT_MAX = 1000
_BEARER = "bearer "

_Question = tuple[str, GatewayTarget]  # digest of a token, and what it is for


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class RemoteGatewayAuthorizer:
    """``client_of`` is the manager on a plane; ``elapsed_s`` a clock that only goes forward."""

    client_of: Callable[[PlaneName], Client]
    unix_s: Callable[[], float]
    elapsed_s: Callable[[], float]
    audit: AuditSink
    _allowed: dict[_Question, tuple[float, Caller]] = field(default_factory=dict)

    async def check(self, request: Request, about: GatewayTarget) -> str:
        """Raises if the caller may not; there is no id for the trail."""
        token = _token(request)
        question = _question(token, about)
        until_s, known = self._allowed.get(question, (0.0, None))
        is_current = known is not None and self.elapsed_s() < until_s
        caller = known if is_current and known else await self._caller(token, about.plane)
        if request.peer is not None:
            request.peer.identify(caller.name, reserved=False)
        if is_current:
            return ""
        await self._ask(caller, about)
        self._allowed.pop(question, None)
        while len(self._allowed) >= _KEPT_MAX:
            del self._allowed[next(iter(self._allowed))]
        self._allowed[question] = (self.elapsed_s() + HOLDS_S, caller)
        return ""

    async def refused(self, request: Request, about: GatewayTarget, error: ApiError) -> None:
        """Of whom nobody knows it is not asked again who that is."""
        if isinstance(error, Forbidden):
            await self.note(request, about, code=error.code, reason=error.reason)
        elif isinstance(error, Unauthorized):
            self._keep(about, "", code=error.code, reason=error.reason)

    async def note(
        self,
        request: Request,
        about: GatewayTarget,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None:
        """One line of the trail."""
        name = await self._name(request, about)
        self._keep(about, name, code=code, reason=reason, request_id=request_id, since_s=since_s)

    def _keep(
        self,
        about: GatewayTarget,
        name: str,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None:
        event = audit_event(
            about, name, self.unix_s(), since_s, code=code, reason=reason, request_id=request_id
        )
        self.audit(event)

    async def _name(self, request: Request, about: GatewayTarget) -> str:
        """Who was let in is known, whatever has become of the token or of the API server since."""
        try:
            token = _token(request)
            _, known = self._allowed.get(_question(token, about), (0.0, None))
            return (known or await self._caller(token, about.plane)).name
        except (ApiError, Unreachable):
            return ""

    async def _caller(self, token: str, plane: PlaneName) -> Caller:
        asked = TokenReview(spec=TokenReviewSpec(token=token))
        with _as_the_gateway():
            answered = (await self.client_of(plane).create(TOKEN_REVIEW, asked)).status
        user = answered.get("user", {})
        if not answered.get("authenticated") or not user.get("username"):
            raise Unauthorized("the API server of the plane does not know this token")
        extra = user.get("extra") or {}
        return Caller(
            name=user["username"],
            uid=user.get("uid", ""),
            groups=tuple(user.get("groups") or ()),
            extra=tuple((key, tuple(values)) for key, values in extra.items()),
        )

    async def _ask(self, caller: Caller, about: GatewayTarget) -> None:
        spec = AccessSpec(
            resource_attributes=ResourceAttributes(
                namespace=about.namespace,
                verb=about.verb,
                group=GROUP,
                resource=about.resource,
                subresource=about.subresource,
                name=about.name,
            ),
            user=caller.name,
            uid=caller.uid,
            groups=list(caller.groups),
            extra={key: list(values) for key, values in caller.extra},
        )
        asked = SubjectAccessReview(spec=spec)
        with _as_the_gateway():
            answered = await self.client_of(about.plane).create(SUBJECT_ACCESS_REVIEW, asked)
        if not answered.status.get("allowed"):
            raise forbidden(about, caller.name)


@contextmanager
def _as_the_gateway() -> Iterator[None]:
    """What is refused to the gateway itself is not the caller's fault."""
    try:
        yield
    except (Forbidden, Unauthorized) as error:
        why = f"the gateway may not ask who you are, or what you may: {error.message}"
        raise ServiceUnavailable(why) from error


def _question(token: str, about: GatewayTarget) -> _Question:
    return hashlib.sha256(token.encode()).hexdigest(), about


def _token(request: Request) -> str:
    if any(name.startswith(_IMPERSONATE) for name in request.headers):
        raise Forbidden("nobody acts as somebody else at this gateway: leave impersonation out")
    said = request.headers.get("authorization", "")
    if not said.lower().startswith(_BEARER) or not said[len(_BEARER) :].strip():
        raise Unauthorized(
            "this gateway knows callers by a bearer token: client certificates are for API servers"
        )
    return said[len(_BEARER) :].strip()
