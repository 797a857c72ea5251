"""One bearer token for each plane, one for the controllers, and one for whoever runs the platform.
Made once, kept in one file."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.codec import DecodeError, decode_as, encode
from datum_compute.api.plane import PlaneName
from datum_compute.app.files import StateError, write_private
from datum_compute.planes.roles import MANAGER_USER, OPERATOR_USER, admin_user
from datum_compute.server.authentication import EVERY_PLANE, Authenticator, User, authenticator_of

_MANAGER, _OPERATOR = "manager", "operator"


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """Tokens by plane. A plane's token reaches that plane only; what it may do there is for the
    plane's roles to say. Never printed."""

    manager: str
    planes: dict[PlaneName, str]
    operator: str = ""

    @property
    def of_manager(self) -> dict[PlaneName, str]:
        """The token of the controllers, for each plane."""
        return dict.fromkeys(self.planes, self.manager)

    def authenticator(self) -> Authenticator:
        users = {
            token: User(admin_user(plane), (), frozenset({plane}))
            for plane, token in self.planes.items()
        }
        controllers = User(MANAGER_USER, (), frozenset({EVERY_PLANE}))
        everybody = {**users, self.manager: controllers}
        if self.operator:
            everybody[self.operator] = User(OPERATOR_USER, (), frozenset({EVERY_PLANE}))
        return authenticator_of(everybody)


def new_credentials(planes: Iterable[PlaneName]) -> Credentials:
    return Credentials(_new_token(), {plane: _new_token() for plane in planes})


def ensure_credentials(path: Path, planes: Iterable[PlaneName]) -> Credentials:
    """The tokens in the file, with new ones for planes that have none yet."""
    known = _read_tokens(path) if path.exists() else {}
    names: list[str] = [_MANAGER, _OPERATOR, *planes]
    tokens = {name: known.get(name) or _new_token() for name in names}
    if tokens != known:
        write_private(path, encode(tokens))
    manager, operator = tokens.pop(_MANAGER), tokens.pop(_OPERATOR)
    own = {PlaneName(name): token for name, token in tokens.items()}
    return Credentials(manager, own, operator)


def _read_tokens(path: Path) -> dict[str, str]:
    try:
        tokens = decode_as(path.read_bytes(), dict[str, str])
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); restore it, or remove it to get new tokens"
        ) from error
    if len(set(tokens.values())) != len(tokens):
        raise StateError(f"{path} gives one token to two planes; remove it to get new tokens")
    return tokens


def _new_token() -> str:
    return secrets.token_urlsafe(32)
