"""Roles and bindings for tests, and a user they are given to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.role_objects import ensure_roles
from datum_compute.server.access.authentication import User
from testkit.api_server.running_server import TOKEN, InProcessServer, running_server

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
ANN = "token-of-ann"
DEFAULT = "/namespaces/default"


@asynccontextmanager
async def server_with_ann(*groups: str, **more: Any) -> AsyncIterator[InProcessServer]:
    """A server where ann may reach every plane and holds nothing yet."""
    users = {ANN: User("ann", groups, frozenset({"*"}))}
    async with running_server(users=users, **more) as server:
        yield server


def rule(
    verbs: str, resources: str = "", *, group: str = "compute.datumapis.com", names: str = ""
) -> JsonObject:
    found: JsonObject = {
        "verbs": verbs.split(),
        "apiGroups": [group],
        "resources": resources.split(),
    }
    return {**found, "resourceNames": names.split()} if names else found


def paths(verbs: str, *urls: str) -> JsonObject:
    return {"verbs": verbs.split(), "nonResourceURLs": list(urls)}


def cluster_role(name: str, *rules: JsonObject, **more: Any) -> JsonObject:
    labels = more.pop("labels", {})
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": metadata,
        "rules": list(rules),
        **more,
    }


def role(name: str, *rules: JsonObject) -> JsonObject:
    return {**cluster_role(name, *rules), "kind": "Role"}


def user(name: str = "ann") -> JsonObject:
    return {"kind": "User", "name": name}


def binding(name: str, to: str, *subjects: JsonObject, of: str = "ClusterRole") -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": of, "name": to},
        "subjects": list(subjects) or [user()],
    }


def cluster_binding(name: str, to: str, *subjects: JsonObject) -> JsonObject:
    return {**binding(name, to, *subjects), "kind": "ClusterRoleBinding"}


async def grant(
    server: InProcessServer, *rules: JsonObject, prefix: str = "", name: str = "held"
) -> None:
    """Give ann the rules on the whole plane."""
    await server.json("POST", f"{prefix}{RBAC}/clusterroles", cluster_role(name, *rules))
    bound = cluster_binding(name, name)
    await server.json("POST", f"{prefix}{RBAC}/clusterrolebindings", bound)


async def grant_in(server: InProcessServer, *rules: JsonObject, name: str = "held") -> None:
    """Give ann the rules in the namespace default of the platform plane."""
    await server.json("POST", f"{RBAC}{DEFAULT}/roles", role(name, *rules))
    bound = binding(name, name, of="Role")
    await server.json("POST", f"{RBAC}{DEFAULT}/rolebindings", bound)


async def ensure_first_roles(server: InProcessServer, plane: str) -> None:
    """The roles every plane starts with, as at bootstrap."""
    name = PlaneName(plane)
    transport = InProcessTransport(server.api.dispatch)
    client = Client(transport, prefix=path_prefix(name), token=TOKEN, agent="test")
    await ensure_roles(client, name)
