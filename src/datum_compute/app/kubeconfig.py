"""The kubeconfigs of this installation: one context for each plane. People get one, controllers
that run beside this process (``compute-manager``) another."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from datum_compute.api.plane import PlaneName, member_name, path_prefix, plane_role
from datum_compute.api.quotametrics import QUOTA_NAMESPACE
from datum_compute.app.files import write_private

_OPERATOR = "operator"


def write_kubeconfig(
    path: Path,
    *,
    server: str,
    authority: bytes,
    tokens: Mapping[PlaneName, str],
    current: PlaneName,
    operator: str = "",
) -> None:
    """With the token of an operator there is a context ``operator/<project>`` for each project.
    Left alone when nothing changed, so that a restart does not touch what users look at."""
    config = _kubeconfig(server, authority, tokens, current)
    if operator:
        config["users"].append({"name": _OPERATOR, "user": {"token": operator}})
        config["contexts"] += [_operator_context(p) for p in tokens if plane_role(p) == "project"]
    content = yaml.safe_dump(config, sort_keys=False).encode()
    if not path.exists() or path.read_bytes() != content:
        write_private(path, content)


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
