"""Who is calling: users, and the bearer tokens that are known from the start.

Tokens are kept and looked up by their sha256, so neither memory nor timing tells one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from datum_compute.api.membership import CELLS_GROUP
from datum_compute.api.planes import PlaneName, plane_role

EVERY_PLANE = "*"
EVERY_PROJECT = "project/*"
AUTHENTICATED = "system:authenticated"
MASTERS = "system:masters"  # members may do everything on the planes they reach
_SYSTEM_PREFIX = "system:"
# Users with the reserved prefix that are not part of the platform.
_NOT_SYSTEM = ("system:serviceaccount:", "system:joiner:", "system:anonymous")


@dataclass(frozen=True, slots=True)
class User:
    """``planes`` lists the planes the user may reach; ``*`` stands for all of them, ``project/*``
    for those of projects. What it may do there is for the roles of the plane to say."""

    name: str
    groups: tuple[str, ...] = ()
    planes: frozenset[str] = frozenset()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def may_reach(self, plane: PlaneName) -> bool:
        if EVERY_PLANE in self.planes or plane in self.planes:
            return True
        return EVERY_PROJECT in self.planes and plane_role(plane) == "project"


def is_platform_user(user: User) -> bool:
    """Whether the user is a controller or a cell."""
    if CELLS_GROUP in user.groups:
        return True
    return user.name.startswith(_SYSTEM_PREFIX) and not user.name.startswith(_NOT_SYSTEM)


@dataclass(frozen=True, slots=True)
class Authenticator:
    """Users by the digest of their token."""

    users: dict[bytes, User]

    def user_of(self, token: str) -> User | None:
        return self.users.get(token_digest(token))

    def admit(self, token: str, user: User) -> None:
        """From now on; for tokens that are changed while the server runs."""
        self.users[token_digest(token)] = authenticated(user)

    def dismiss(self, token: str) -> None:
        self.users.pop(token_digest(token), None)


def token_digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def authenticator_of(users_by_token: Mapping[str, User]) -> Authenticator:
    return Authenticator(
        {token_digest(t): authenticated(user) for t, user in users_by_token.items() if t}
    )


def authenticated(user: User) -> User:
    """The user as a member of the group of all whose identity is proven."""
    if AUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
