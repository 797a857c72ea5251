"""Creates the initial ClusterRoles and ClusterRoleBindings of a plane.

Each role has an annotation with the digest of the rules it was created with. A newer release
replaces the rules only if they still match the digest. Roles that were edited stay as they are, and
so do all existing bindings.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache

from datum_compute.api.errors import AlreadyExists, Conflict
from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from datum_compute.api.meta.codec import JsonObject, canonical_hash
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.client.client import Client
from datum_compute.planes.planes import ExistenceCheck, assume_missing
from datum_compute.planes.roles import (
    AGGREGATE_TO,
    RBAC,
    is_aggregated,
    rules_on,
    subjects_by_role,
)

RULES_DIGEST_ANNOTATION = "rbac.compute.datumapis.com/made-with-rules"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}


async def ensure_roles(
    client: Client, plane: PlaneName, exists: ExistenceCheck = assume_missing
) -> None:
    roles = (await client.list_plain(CLUSTER_ROLE)).items  # one request: there are few
    present = {role["metadata"]["name"]: role for role in roles}
    for role in _roles_on(plane_role(plane)):
        await _ensure_role(client, role, present.get(role["metadata"]["name"]))
    for name, subjects in subjects_by_role(plane).items():
        if not exists(CLUSTER_ROLE_BINDING, Ref("", name)):
            await _create_binding(client, _build_binding(name, subjects))


async def _ensure_role(client: Client, desired: JsonObject, present: JsonObject | None) -> None:
    if present is None:
        await _create_role(client, desired)
        return
    annotations = present["metadata"].get("annotations", {})
    created_digest = annotations.get(RULES_DIGEST_ANNOTATION)
    new_digest = desired["metadata"]["annotations"][RULES_DIGEST_ANNOTATION]
    if created_digest == new_digest or created_digest != canonical_hash(present.get("rules", [])):
        return
    metadata = {
        **present["metadata"],
        "annotations": {**annotations, RULES_DIGEST_ANNOTATION: new_digest},
    }
    type_meta = {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind}
    try:
        await client.update_plain(
            CLUSTER_ROLE, {**type_meta, **present, "metadata": metadata, "rules": desired["rules"]}
        )
    except Conflict:
        return  # edited concurrently: keep the edit


async def _create_role(client: Client, role: JsonObject) -> None:
    with suppress(AlreadyExists):
        await client.create_plain(CLUSTER_ROLE, role)


async def _create_binding(client: Client, binding: JsonObject) -> None:
    with suppress(AlreadyExists):
        await client.create_plain(CLUSTER_ROLE_BINDING, binding)


@cache
def _roles_on(role: str) -> tuple[JsonObject, ...]:
    """Return the ClusterRoles of planes of a role. Cached, because hashing slows the start."""
    return tuple(_build_role(name, rules) for name, rules in rules_on(role).items())


def _build_role(name: str, rules: Sequence[JsonObject]) -> JsonObject:
    role: JsonObject = {
        "apiVersion": CLUSTER_ROLE.api_version,
        "kind": CLUSTER_ROLE.kind,
        "metadata": {
            "name": name,
            "labels": _LABELS,
            "annotations": {RULES_DIGEST_ANNOTATION: canonical_hash(list(rules))},
        },
        "rules": list(rules),
    }
    if is_aggregated(name):
        selector = {"matchLabels": {f"{AGGREGATE_TO}{name}": "true"}}
        role["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return role


def _build_binding(name: str, subjects: Sequence[tuple[str, str]]) -> JsonObject:
    return {
        "apiVersion": CLUSTER_ROLE_BINDING.api_version,
        "kind": CLUSTER_ROLE_BINDING.kind,
        "metadata": {"name": name, "labels": _LABELS},
        "roleRef": {"apiGroup": RBAC, "kind": CLUSTER_ROLE.kind, "name": name},
        "subjects": [
            {"apiGroup": RBAC, "kind": kind, "name": subject} for kind, subject in subjects
        ],
    }
