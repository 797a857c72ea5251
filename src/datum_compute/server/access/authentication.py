"""Users, and the static tokens of the server."""

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
    """``planes`` lists the planes that the user may reach: ``*`` means all planes, ``project/*``
    all projects. The roles of a plane determine what the user may do on it."""

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
    """Return True for controllers and cells."""
    if CELLS_GROUP in user.groups:
        return True
    return user.name.startswith(_SYSTEM_PREFIX) and not user.name.startswith(_NOT_SYSTEM)


class StaticTokens:
    """Bearer tokens that the server was configured with, and their users.

    Tokens are stored and looked up by SHA-256, so that neither memory nor timing reveals a token.
    """

    def __init__(self, users_by_token: Mapping[str, User]) -> None:
        self._users: dict[bytes, User] = {}
        for token, user in users_by_token.items():
            if token:
                self.add(token, user)

    def user_of(self, token: str) -> User | None:
        return self._users.get(_digest_of(token))

    def add(self, token: str, user: User) -> None:
        self._users[_digest_of(token)] = with_authenticated_group(user)

    def remove(self, token: str) -> None:
        self._users.pop(_digest_of(token), None)


def _digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def with_authenticated_group(user: User) -> User:
    """Return the user as a member of ``system:authenticated``."""
    if AUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))
