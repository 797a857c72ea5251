"""The kubeconfigs of this installation: one context for each plane. People get one, controllers
that run beside this process (``compute-manager``) another."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from datum_compute.api.planes import PlaneName, member_name, path_prefix, plane_role
from datum_compute.api.quotametrics import QUOTA_NAMESPACE
from datum_compute.app.state_credentials import Credentials
from datum_compute.app.state_directory import write_private
from datum_compute.server.http.server import HOST

_OPERATOR = "operator"
_PARTS = ("clusters", "users", "contexts")
# Where the state directories of cells lie that ``local up --processes`` starts.
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
    """With the token of an operator there is a context ``operator/<project>`` for each project.
    Left alone when nothing changed, so that a restart does not touch what users look at."""
    config = _kubeconfig(server, authority, tokens, current)
    if operator:
        config["users"].append({"name": _OPERATOR, "user": {"token": operator}})
        config["contexts"] += [_operator_context(p) for p in tokens if plane_role(p) == "project"]
    _write(path, _with_contexts(config, more))


def _write(path: Path, config: dict[str, Any]) -> None:
    content = yaml.safe_dump(config, sort_keys=False).encode()
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


def write_kubeconfigs(
    state: Path, credentials: Credentials, authority: bytes, port: int, current: PlaneName
) -> None:
    """One for people, one for controllers; each with the contexts of cells that have their own
    process and lie in this state directory."""
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
    """Take up the contexts of cells that were started after the kubeconfigs were written."""
    for name in ("kubeconfig", "manager.kubeconfig"):
        config = yaml.safe_load((state / name).read_bytes())
        _write(state / name, _with_contexts(config, cell_kubeconfigs(state, name)))


def _with_contexts(config: dict[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """What is there stays, unless a file has newer words on it."""
    found = {part: {entry["name"]: entry for entry in config[part]} for part in _PARTS}
    for file in files:
        other = yaml.safe_load(file.read_bytes())
        for part in _PARTS:
            found[part].update({entry["name"]: entry for entry in other[part]})
    return {**config, **{part: list(entries.values()) for part, entries in found.items()}}


def _operator_context(project: PlaneName) -> dict[str, Any]:
    context = {"cluster": project, "user": _OPERATOR, "namespace": QUOTA_NAMESPACE}
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
