"""Authenticates a request: from its credentials to the user that it runs as.

A bearer token or a client certificate proves the identity of the caller. If a request has both,
only the token counts: an invalid token is rejected even with a valid certificate. A request without
credentials is rejected with 401; only health and version respond to anonymous callers.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from contextlib import suppress

import msgspec

from datum_compute.api.errors import ApiError, NotFound, Unauthorized
from datum_compute.api.http import Request
from datum_compute.api.kinds import JOIN_TOKEN
from datum_compute.api.membership import JOINERS_GROUP, join_token_name, join_token_user
from datum_compute.api.meta.codec import decode
from datum_compute.api.planes import HUB, PlaneName
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.access.audit import AuditContext, AuditedUsers
from datum_compute.server.access.authentication import (
    MASTERS,
    StaticTokens,
    User,
    is_platform_user,
    with_authenticated_group,
)
from datum_compute.server.access.authorization import Authorizer
from datum_compute.server.access.client_certificates import CertificateReader
from datum_compute.server.access.impersonation import IMPERSONATE, impersonated_user
from datum_compute.server.access.service_accounts import ISSUER, ServiceAccountTokens, TokenUser
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

NEVER_S = float("inf")
_OUR_AUDIENCE = (ISSUER,)
_AUTHORIZATION = "authorization"


class Principal(msgspec.Struct, frozen=True):
    """The request runs as ``user``. ``authenticated_user`` sent it, and differs from ``user`` if it
    impersonates. The credentials are valid until ``until_s``."""

    user: User
    authenticated_user: User
    until_s: float = NEVER_S


class RequestAuthenticator:
    """``service_accounts`` is None if the server has no key to sign their tokens."""

    def __init__(
        self,
        static_tokens: StaticTokens,
        service_accounts: ServiceAccountTokens | None,
        store: Store,
        authorizer: Authorizer,
        clock: Callable[[], float],
    ) -> None:
        self._static_tokens = static_tokens
        self._service_accounts = service_accounts
        self._store = store
        self._authorizer = authorizer
        self._certificates = CertificateReader()
        self._clock = clock

    def identify(
        self, request: Request, plane: PlaneName, audit: AuditContext | None = None
    ) -> Principal:
        """Return the principal of a request. ``audit`` records the authenticated user even if
        impersonation is forbidden."""
        authenticated_user, until_s = self._authenticate(request)
        if audit is not None:
            audit.authenticated_user = audit.user = authenticated_user
        if request.peer is not None:
            # Controllers, cells and operators have reserved connections.
            groups = authenticated_user.groups
            is_reserved = MASTERS in groups or is_platform_user(authenticated_user)
            request.peer.identify(authenticated_user.name, reserved=is_reserved)
        for name in request.headers:
            if name.startswith(IMPERSONATE):
                break
        else:
            return Principal(authenticated_user, authenticated_user, until_s)
        user = impersonated_user(self._authorizer, authenticated_user, plane, request)
        if audit is not None:
            audit.user = user
        return Principal(user, authenticated_user, until_s)

    def audited_users(self, request: Request, plane: PlaneName) -> AuditedUsers:
        """Return the users of a request for the audit log. A name is empty if the user cannot be
        authenticated, or impersonated, now."""
        audit = AuditContext("", 0.0)
        with suppress(ApiError):
            self.identify(_copy_credentials(request), plane, audit)
        sender, user = audit.authenticated_user, audit.user
        name = sender.name if sender is not None else ""
        return AuditedUsers(name, user.name if user is not None and user.name != name else "")

    def recheck(
        self, request: Request, plane: PlaneName, attributes: Attributes
    ) -> Callable[[], bool]:
        """Return a function that returns True while the request would still be permitted.

        The function keeps only the credentials of the request: it lives as long as a watch, and a
        request can have megabytes.
        """
        credentials = _copy_credentials(request)

        def is_permitted() -> bool:
            try:
                principal = self.identify(credentials, plane)
                self._authorizer.check(principal.user, plane, attributes)
            except ApiError:
                return False
            return True

        return is_permitted

    def user_of_token(self, token: str) -> TokenUser | None:
        """Return the user of a valid token, whatever its audiences."""
        user = self._static_tokens.user_of(token)
        if user is not None:
            return TokenUser(user, _OUR_AUDIENCE, NEVER_S)
        return self._service_accounts.user_of(token) if self._service_accounts else None

    def _authenticate(self, request: Request) -> tuple[User, float]:
        """Return the sender of the request, and when its credentials expire."""
        header = request.headers.get(_AUTHORIZATION)
        if header is not None:
            scheme, _, credentials = header.partition(" ")
            is_bearer = scheme.lower() == "bearer"
            identity = self._authenticate_token(credentials.strip()) if is_bearer else None
        elif request.certificate_pem:
            identity = self._certificates.user_of(request.certificate_pem, self._clock())
        else:
            identity = None
        if identity is None:
            raise Unauthorized("Unauthorized")
        return identity

    def _authenticate_token(self, token: str) -> tuple[User, float] | None:
        token_user = self.user_of_token(token)
        if token_user is not None and ISSUER in token_user.audiences:
            return token_user.user, token_user.until_s
        joiner = user_of_join_token(self._store, token)
        return (joiner, NEVER_S) if joiner is not None else None


def _copy_credentials(request: Request) -> Request:
    """Return a request with the credentials of ``request`` and nothing else. It has no connection:
    the connection of ``request`` already counts for the user."""
    headers = {
        name: " ".join(value.split()) if name == _AUTHORIZATION else value
        for name, value in request.headers.items()
        if name == _AUTHORIZATION or name.startswith(IMPERSONATE)
    }
    repeated = {
        name: values for name, values in request.repeated_headers.items() if name in headers
    }
    return Request(
        "",
        "",
        headers=headers,
        certificate_pem=request.certificate_pem,
        repeated_headers=repeated,
    )


def has_credentials(request: Request) -> bool:
    return _AUTHORIZATION in request.headers or bool(request.certificate_pem)


def user_of_join_token(store: Store, token: str) -> User | None:
    """Return the user for the holder of a join token; None if no JoinToken of the hub has it.

    Expired and used tokens authenticate too, so that the join itself can return the reason for
    which it rejects them.
    """
    name = join_token_name(token)
    if not name:
        return None
    try:
        record = store.get(HUB, ObjectKey(JOIN_TOKEN.storage, "", name))
    except NotFound:
        return None
    if record is None:
        return None
    stored_hash: str = decode(record.body)["spec"]["tokenHash"]
    token_hash = hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
    if not hmac.compare_digest(stored_hash, token_hash):
        return None
    return with_authenticated_group(User(join_token_user(name), (JOINERS_GROUP,), frozenset({HUB})))
