"""Who may ask the gateway what, and the trail of it.

Asked by a SelfSubjectAccessReview with the caller's own credentials, so the same roles decide that
decide about everything else. Refusals are kept in the audit log, and so is every command that is
run in an instance, when it begins and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from datum_compute.api.errors import ApiError, Forbidden, from_status
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.planes import PlaneName, path_prefix, plane_role
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
class About:
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
    """Of the door: ``Doorkeeper`` where the API server is of this process, ``Reviewer`` where it is
    another one."""

    async def check(self, request: Request, about: About) -> str: ...

    async def refused(self, request: Request, about: About, error: ApiError) -> None: ...

    async def note(
        self,
        request: Request,
        about: About,
        *,
        code: int,
        reason: str,
        request_id: str = "",
        since_s: float | None = None,
    ) -> None: ...


def forbidden(about: About, whom: str) -> Forbidden:
    return Forbidden(
        f'{about.resource}.{GROUP} "{about.name}" is forbidden: {whom} cannot {about.verb} '
        f'resource "{about.full_resource}" in the namespace "{about.namespace}"'
    )


def audit_event(
    about: About,
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
class Doorkeeper:
    """``inner`` is the API server, which knows the callers and their roles."""

    inner: Dispatch
    unix_s: Callable[[], float]
    audit: AuditSink

    async def check(self, request: Request, about: About) -> str:
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

    async def refused(self, request: Request, about: About, error: ApiError) -> None:
        """Whoever was turned away by us; who has no name is in the trail of the server already."""
        if isinstance(error, Forbidden):
            await self.note(request, about, code=error.code, reason=error.reason)

    async def note(
        self,
        request: Request,
        about: About,
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
