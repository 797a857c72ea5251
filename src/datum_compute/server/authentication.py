"""Who is calling: a bearer token becomes a user.

Tokens are kept and looked up by their sha256, so neither memory nor timing tells one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from datum_compute.api.errors import Forbidden, Unauthorized
from datum_compute.api.plane import PlaneName

EVERY_PLANE = "*"


@dataclass(frozen=True, slots=True)
class User:
    """``planes`` lists the planes the user may reach; ``*`` stands for all of them."""

    name: str
    groups: tuple[str, ...] = ()
    planes: frozenset[str] = frozenset()

    def may_reach(self, plane: PlaneName) -> bool:
        return EVERY_PLANE in self.planes or plane in self.planes


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Users by the digest of their token."""

    users: Mapping[bytes, User]

    def user_of(self, headers: Mapping[str, str]) -> User:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        user = self.users.get(token_digest(token.strip())) if scheme.lower() == "bearer" else None
        if user is None:
            raise Unauthorized("Unauthorized")
        _refuse_impersonation(headers, user)
        return user


def token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def authenticator_of(users_by_token: Mapping[str, User]) -> Authenticator:
    return Authenticator({token_digest(t): user for t, user in users_by_token.items() if t})


def _refuse_impersonation(headers: Mapping[str, str], user: User) -> None:
    """Answering as the caller what was asked as somebody else would be worse than an error."""
    if any(name.startswith("impersonate-") for name in headers):
        raise Forbidden(f'User "{user.name}" cannot impersonate: this server does not support it')
