"""Bearer tokens, kubeconfigs and the token signing key of a state directory.

There is a token for each plane, one for the controllers and one for the operator. A cell with its
own process has a token for the hub instead of one for the operator. All are created once and kept
in one file.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from datum_compute.api.membership import HUB_USER, token_text
from datum_compute.api.meta.codec import DecodeError, decode_as, encode
from datum_compute.api.planes import PLATFORM, PlaneName, member_name, path_prefix, plane_role
from datum_compute.api.quota import QUOTA_NAMESPACE
from datum_compute.app.state_directory import StateError, write_private
from datum_compute.planes.roles import MANAGER_USER, OPERATOR_USER, admin_user
from datum_compute.server.access.authentication import (
    EVERY_PLANE,
    EVERY_PROJECT,
    StaticTokens,
    User,
)
from datum_compute.server.access.service_accounts import TokenSigner
from datum_compute.server.http.listen import HOST

_MANAGER, _OPERATOR = "manager", "operator"
# The token of the hub on a cell, and the token that will replace it (see cell_membership.py).
HUB_TOKEN, NEXT_HUB_TOKEN = "hub-of-cell", "next-hub-of-cell"


@dataclass(frozen=True, slots=True, repr=False)
class PlaneTokens:
    """Tokens by plane. The repr omits them.

    The token of a plane gives access to that plane and to those in ``_accessible_planes``. The
    roles of a plane decide what the user may do there.
    """

    manager: str
    planes: dict[PlaneName, str]
    operator: str = ""
    hub: str = ""  # token of the hub, if the planes belong to a cell
    next_hub: str = ""  # new token that the hub may have received already

    @property
    def of_manager(self) -> dict[PlaneName, str]:
        """The token of the controllers, for each plane."""
        return dict.fromkeys(self.planes, self.manager)

    def authenticator(self) -> StaticTokens:
        users = {
            token: User(admin_user(plane), (), _accessible_planes(plane))
            for plane, token in self.planes.items()
        }
        controllers = User(MANAGER_USER, (), frozenset({EVERY_PLANE}))
        known = {**users, self.manager: controllers}
        if self.operator:
            known[self.operator] = User(OPERATOR_USER, (), frozenset({EVERY_PLANE}))
        for token in filter(None, (self.hub, self.next_hub)):
            known[token] = User(HUB_USER, (), frozenset(self.planes))
        return StaticTokens(known)


def _accessible_planes(plane: PlaneName) -> frozenset[str]:
    """Return the planes that the administrator of a plane may access.

    A platform administrator may access all projects, including later ones. A project administrator
    may access the platform, which has the catalog of services.
    """
    match plane_role(plane):
        case "platform":
            return frozenset({plane, EVERY_PROJECT})
        case "project":
            return frozenset({plane, PLATFORM})
        case _:
            return frozenset({plane})


def with_projects(credentials: PlaneTokens, projects: Collection[PlaneName]) -> PlaneTokens:
    """Return credentials for exactly these projects and all other planes.

    A project that was created later uses the token of the platform administrator. Tokens of deleted
    projects are left out.
    """
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


def new_credentials(planes: Iterable[PlaneName]) -> PlaneTokens:
    return PlaneTokens(new_token(), {plane: new_token() for plane in planes})


def ensure_credentials(
    path: Path, planes: Iterable[PlaneName], *, of_cell: bool = False
) -> PlaneTokens:
    """Read the tokens from the file, and add a new one for each plane without a token.

    A cell has a token for the hub instead of one for the operator.
    """
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
        return PlaneTokens(manager, own, hub=own_other, next_hub=next_hub)
    return PlaneTokens(manager, own, own_other)


def read_tokens(path: Path) -> dict[str, str]:
    try:
        tokens = decode_as(path.read_bytes(), dict[str, str])
    except DecodeError as error:
        raise StateError(
            f"{path} is damaged ({error}); restore the file, or remove it to create new tokens"
        ) from error
    if len(set(tokens.values())) != len(tokens):
        raise StateError(
            f"{path} has the same token for two planes; remove the file to create new tokens"
        )
    return tokens


@dataclass(frozen=True, slots=True, repr=False)
class NewJoinToken:
    """A join token: its name and hash, which the hub stores, and its secret text."""

    name: str
    token_hash: str
    text: str


def new_join_token() -> NewJoinToken:
    name = f"join-{secrets.token_hex(5)}"
    text = token_text(name, new_token())
    return NewJoinToken(name, hashlib.sha256(text.encode()).hexdigest(), text)


def new_token() -> str:
    return secrets.token_urlsafe(32)


# --- The kubeconfigs of this installation, with a context for each plane
# One is for users. Another is for controllers in a separate process (``compute-manager``).


_OPERATOR_USER = "operator"
_PARTS = ("clusters", "users", "contexts")
# The parent of the state directories of cells that ``local up --processes`` starts.
CELLS_DIRECTORY = "cells"


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: bytes,
    tokens: Mapping[PlaneName, str],
    current: PlaneName,
    operator: str = "",
    more: Sequence[Path] = (),
) -> None:
    """Write the kubeconfig, unless its content is the same.

    With an operator token it also has a context ``operator/<project>`` for each project.
    """
    config = _kubeconfig(server, authority, tokens, current)
    if operator:
        config["users"].append({"name": _OPERATOR_USER, "user": {"token": operator}})
        config["contexts"] += [_operator_context(p) for p in tokens if plane_role(p) == "project"]
    _write(path, _with_contexts(config, more))


def _write(path: Path, config: dict[str, Any]) -> None:
    content = yaml.safe_dump(config, sort_keys=False).encode()
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


def write_kubeconfigs(
    state: Path, credentials: PlaneTokens, authority: bytes, port: int, current: PlaneName
) -> None:
    """Write a kubeconfig for users and one for controllers.

    Both include the contexts of cells whose state directories are inside this one.
    """
    for name, tokens, operator in (
        ("kubeconfig", credentials.planes, credentials.operator),
        ("manager.kubeconfig", credentials.of_manager, ""),
    ):
        write_kubeconfig(
            state / name,
            server=f"https://{HOST}:{port}",
            authority=authority,
            tokens=tokens,
            current=current,
            operator=operator,
            more=cell_kubeconfigs(state, name),
        )


def cell_kubeconfigs(state: Path, name: str) -> list[Path]:
    return sorted((state / CELLS_DIRECTORY).glob(f"*/{name}"))


def merge_cells(state: Path) -> None:
    """Add the contexts of cells that were started after the kubeconfigs were written."""
    for name in ("kubeconfig", "manager.kubeconfig"):
        config = yaml.safe_load((state / name).read_bytes())
        _write(state / name, _with_contexts(config, cell_kubeconfigs(state, name)))


def _with_contexts(config: dict[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """Merge the files into the config. An entry of a file replaces one of the same name."""
    found = {part: {entry["name"]: entry for entry in config[part]} for part in _PARTS}
    for file in files:
        other = yaml.safe_load(file.read_bytes())
        for part in _PARTS:
            found[part].update({entry["name"]: entry for entry in other[part]})
    return {**config, **{part: list(entries.values()) for part, entries in found.items()}}


def _operator_context(project: PlaneName) -> dict[str, Any]:
    context = {"cluster": project, "user": _OPERATOR_USER, "namespace": QUOTA_NAMESPACE}
    return {"name": f"{_OPERATOR}/{member_name(project)}", "context": context}


def _kubeconfig(
    server: str, authority: bytes, tokens: Mapping[PlaneName, str], current: PlaneName
) -> dict[str, Any]:
    encoded = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "clusters": [
            {
                "name": plane,
                "cluster": {
                    "server": server + path_prefix(plane),
                    "certificate-authority-data": encoded,
                },
            }
            for plane in tokens
        ],
        "users": [{"name": plane, "user": {"token": token}} for plane, token in tokens.items()],
        "contexts": [
            {
                "name": plane,
                "context": {"cluster": plane, "user": plane, "namespace": "default"},
            }
            for plane in tokens
        ],
    }


# --- The signing key for tokens of service accounts


def ensure_signer(path: Path) -> TokenSigner:
    """Return a signer with the key in the file. Create the file if it does not exist.

    A new key invalidates all tokens that the old one signed.
    """
    if not path.exists():
        new_key = ec.generate_private_key(ec.SECP256R1())
        encoded = new_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_private(path, encoded)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise StateError(f"{path} is not a P-256 key; remove the file to create a new key")
    return TokenSigner(key)
