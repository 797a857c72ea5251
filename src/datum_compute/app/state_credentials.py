"""One bearer token for each plane, one for the controllers, and one for whoever runs the platform;
on a cell of its own one for the hub. Made once, kept in one file."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from datum_compute.api.cellidentity import HUB_USER, token_text
from datum_compute.api.meta.codec import DecodeError, decode_as, encode
from datum_compute.api.planes import PLATFORM, PlaneName, plane_role
from datum_compute.app.state_directory import StateError, write_private
from datum_compute.planes.roles import MANAGER_USER, OPERATOR_USER, admin_user
from datum_compute.server.access.authentication import (
    EVERY_PLANE,
    EVERY_PROJECT,
    Authenticator,
    User,
    authenticator_of,
)

_MANAGER, _OPERATOR = "manager", "operator"
# Of the hub on a cell; and the one that it is about to get (hubtoken.py).
HUB_TOKEN, NEXT_HUB_TOKEN = "hub-of-cell", "next-hub-of-cell"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Tokens by plane. A plane's token reaches that plane (``_reached_by`` says what else); what it
    may do there is for the plane's roles to say. Never printed."""

    manager: str
    planes: dict[PlaneName, str]
    operator: str = ""
    hub: str = ""  # of the hub on the planes, which are those of one cell
    next_hub: str = ""  # the same, if the hub may have been told of another already

    @property
    def of_manager(self) -> dict[PlaneName, str]:
        """The token of the controllers, for each plane."""
        return dict.fromkeys(self.planes, self.manager)

    def authenticator(self) -> Authenticator:
        users = {
            token: User(admin_user(plane), (), _reached_by(plane))
            for plane, token in self.planes.items()
        }
        controllers = User(MANAGER_USER, (), frozenset({EVERY_PLANE}))
        everybody = {**users, self.manager: controllers}
        if self.operator:
            everybody[self.operator] = User(OPERATOR_USER, (), frozenset({EVERY_PLANE}))
        for token in filter(None, (self.hub, self.next_hub)):
            everybody[token] = User(HUB_USER, (), frozenset(self.planes))
        return authenticator_of(everybody)


def _reached_by(plane: PlaneName) -> frozenset[str]:
    """Whoever administers the platform reaches the projects that there will be; whoever administers
    a project reaches the catalogue of services."""
    match plane_role(plane):
        case "platform":
            return frozenset({plane, EVERY_PROJECT})
        case "project":
            return frozenset({plane, PLATFORM})
        case _:
            return frozenset({plane})


def with_projects(credentials: Credentials, projects: Collection[PlaneName]) -> Credentials:
    """What is written for people and controllers: projects that were made later are reached as
    whoever administers the platform, and those that are gone are left out."""
    planes = {
        plane: token
        for plane, token in credentials.planes.items()
        if plane_role(plane) != "project" or plane in projects
    }
    later = sorted(plane for plane in projects if plane not in planes)
    return replace(
        credentials,
        planes={**planes, **dict.fromkeys(later, credentials.planes[PLATFORM])},
    )


def new_credentials(planes: Iterable[PlaneName]) -> Credentials:
    return Credentials(new_token(), {plane: new_token() for plane in planes})


def ensure_credentials(
    path: Path, planes: Iterable[PlaneName], *, of_cell: bool = False
) -> Credentials:
    """The tokens in the file, with new ones for planes that have none yet. A cell of its own has a
    token for the hub, and none for an operator of projects."""
    known = read_tokens(path) if path.exists() else {}
    other = HUB_TOKEN if of_cell else _OPERATOR
    names: list[str] = [_MANAGER, other, *planes]
    names += [NEXT_HUB_TOKEN] if of_cell and NEXT_HUB_TOKEN in known else []
    tokens = {name: known.get(name) or new_token() for name in names}
    if tokens != known:
        write_private(path, encode(tokens))
    manager, own_other = tokens.pop(_MANAGER), tokens.pop(other)
    next_hub = tokens.pop(NEXT_HUB_TOKEN, "")
    own = {PlaneName(name): token for name, token in tokens.items()}
    if of_cell:
        return Credentials(manager, own, hub=own_other, next_hub=next_hub)
    return Credentials(manager, own, own_other)


def read_tokens(path: Path) -> dict[str, str]:
    try:
        tokens = decode_as(path.read_bytes(), dict[str, str])
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); restore it, or remove it to get new tokens"
        ) from error
    if len(set(tokens.values())) != len(tokens):
        raise StateError(f"{path} gives one token to two planes; remove it to get new tokens")
    return tokens


@dataclass(frozen=True, slots=True, repr=False)
class NewJoinToken:
    """The name under which the hub keeps it, what it keeps, and what only its holder knows."""

    name: str
    token_hash: str
    text: str


def new_join_token() -> NewJoinToken:
    name = f"join-{secrets.token_hex(5)}"
    text = token_text(name, new_token())
    return NewJoinToken(name, hashlib.sha256(text.encode()).hexdigest(), text)


def new_token() -> str:
    return secrets.token_urlsafe(32)
