"""One request from its credentials to the permission to go on.

A bearer token or a client certificate says who calls. When both are sent the token alone decides,
because it was given on purpose: a wrong one is refused, the certificate does not make up for it.
Whoever sends neither is nobody and gets 401; only health and version answer without a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from datum_compute.api.errors import ApiError, Unauthorized
from datum_compute.api.http import Request
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.audit import AuditContext
from datum_compute.server.access.authentication import (
    MASTERS,
    Authenticator,
    User,
    is_platform_user,
)
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.client_certificates import Certificates
from datum_compute.server.access.impersonation import IMPERSONATE, impersonated
from datum_compute.server.access.service_accounts import ISSUER, AccountTokens, TokenUser

NEVER_S = float("inf")
_OURS = (ISSUER,)
_AUTHORIZATION = "authorization"


class Principal(msgspec.Struct, frozen=True):
    """``user`` is who the request is answered for, ``behind`` who really sent it. The proof of
    who that is ends at ``until_s``."""

    user: User
    behind: User
    until_s: float = NEVER_S


def _nobody(_token: str) -> None:
    """There is no hub to join here."""


class RequestAuthenticator:
    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        accounts: AccountTokens | None,
        clock: Callable[[], float],
        join_token_user: Callable[[str], User | None] = _nobody,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._accounts = accounts
        self._certificates = Certificates()
        self._clock = clock
        self._joiner_of = join_token_user

    def pass_through(
        self,
        request: Request,
        plane: PlaneName,
        wanted: Attributes,
        trail: AuditContext | None = None,
    ) -> Principal:
        """Who calls, if that user may do what it wants on the plane; raises otherwise."""
        caller = self.identify(request, plane, trail)
        self._authorizer.check(caller.user, plane, wanted)
        return caller

    def identify(
        self, request: Request, plane: PlaneName, trail: AuditContext | None = None
    ) -> Principal:
        """Who calls; the trail hears of it even if the caller gets no further than that."""
        behind, until_s = self._proven(request)
        if trail is not None:
            trail.behind = trail.user = behind
        if request.peer is not None:
            request.peer.identify(behind.name, reserved=is_reserved_caller(behind))
        user = impersonated(self._authorizer, behind, plane, request.headers)
        if trail is not None:
            trail.user = user
        return Principal(user, behind, until_s)

    def recheck(self, request: Request, plane: PlaneName, wanted: Attributes) -> Callable[[], bool]:
        """Return a function that checks whether the same request would be permitted now. It keeps
        only the credentials: a watch keeps it until it ends, and a request can have megabytes."""
        credentials = _credentials_of(request)

        def check() -> bool:
            try:
                self.pass_through(credentials, plane, wanted)
            except ApiError:
                return False
            return True

        return check

    def user_of_token(self, token: str, audiences: Sequence[str] = _OURS) -> TokenUser | None:
        """Who a token stands for, if it was made for one of the audiences."""
        user = self._authenticator.user_of(token)
        if user is not None:
            # The tokens of the kubeconfig are for this server and nobody else.
            found: TokenUser | None = TokenUser(user, _OURS, NEVER_S)
        else:
            found = self._accounts.user_of(token) if self._accounts is not None else None
        if found is None:
            return None
        shared = tuple(audience for audience in audiences if audience in found.audiences)
        return TokenUser(found.user, shared, found.until_s) if shared else None

    def _proven(self, request: Request) -> tuple[User, float]:
        """Who sent the request, and when the proof of that ends."""
        header = request.headers.get(_AUTHORIZATION)
        if header is not None:
            found = self._of_header(header)
        elif request.certificate_pem:
            shown = self._certificates.user_of(request.certificate_pem, self._clock())
            found = (shown.user, shown.until_s) if shown is not None else None
        else:
            found = None
        if found is None:
            raise Unauthorized("Unauthorized")
        return found

    def _of_header(self, header: str) -> tuple[User, float] | None:
        scheme, _, rest = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = rest.strip()
        user = self._authenticator.user_of(token)
        if user is not None:
            return user, NEVER_S
        found = self.user_of_token(token)
        if found is not None:
            return found.user, found.until_s
        joiner = self._joiner_of(token)
        return (joiner, NEVER_S) if joiner is not None else None


def is_reserved_caller(user: User) -> bool:
    """Return True for controllers, cells and operators, which have reserved connections. ``user``
    is the sender of the request, not the user it impersonates."""
    return MASTERS in user.groups or is_platform_user(user)


def _credentials_of(request: Request) -> Request:
    """Return a request with the identity of ``request`` and nothing else. It has no connection,
    which is already counted for the user."""
    headers = {
        name: " ".join(value.split()) if name == _AUTHORIZATION else value
        for name, value in request.headers.items()
        if name == _AUTHORIZATION or name.startswith(IMPERSONATE)
    }
    return Request("", "", headers=headers, certificate_pem=request.certificate_pem)


def has_credentials(request: Request) -> bool:
    return _AUTHORIZATION in request.headers or bool(request.certificate_pem)
