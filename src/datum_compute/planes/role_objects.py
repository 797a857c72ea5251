"""The first roles and bindings of a plane as API objects: made when absent, kept when edited.

Each role remembers a digest of the rules it was made with. A newer release may bring other rules;
they replace the old ones only while those are as they were made. A role that somebody edited is
theirs, and so is every binding.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from datum_compute.api.codec import JsonObject, canonical_hash
from datum_compute.api.errors import AlreadyExists, Conflict
from datum_compute.api.kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName, plane_role
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
    client: Client, plane: PlaneName, holds: ExistenceCheck = assume_missing
) -> None:
    present = {role["metadata"]["name"]: role for role in await _all(client, CLUSTER_ROLE)}
    for role in _roles_on(plane_role(plane)):
        await _ensure_role(client, role, present.get(role["metadata"]["name"]))
    for name, subjects in subjects_by_role(plane).items():
        if not holds(CLUSTER_ROLE_BINDING, Ref("", name)):
            await _create_binding(client, _binding(name, subjects))


async def _all(client: Client, kind: KindInfo[Any]) -> Sequence[JsonObject]:
    """In one answer, because a plane has few of them."""
    return (await client.list_plain(kind)).items


async def _ensure_role(client: Client, wanted: JsonObject, present: JsonObject | None) -> None:
    if present is None:
        await _create_role(client, wanted)
        return
    annotations = present["metadata"].get("annotations", {})
    made_with = annotations.get(RULES_DIGEST_ANNOTATION)
    newest = wanted["metadata"]["annotations"][RULES_DIGEST_ANNOTATION]
    if made_with == newest or made_with != canonical_hash(present.get("rules", [])):
        return
    metadata = {
        **present["metadata"],
        "annotations": {**annotations, RULES_DIGEST_ANNOTATION: newest},
    }
    said = {"apiVersion": CLUSTER_ROLE.api_version, "kind": CLUSTER_ROLE.kind}
    try:
        await client.update_plain(
            CLUSTER_ROLE, {**said, **present, "metadata": metadata, "rules": wanted["rules"]}
        )
    except Conflict:
        return  # somebody edits it at this moment: theirs


async def _create_role(client: Client, role: JsonObject) -> None:
    try:
        await client.create_plain(CLUSTER_ROLE, role)
    except AlreadyExists:
        return


async def _create_binding(client: Client, binding: JsonObject) -> None:
    try:
        await client.create_plain(CLUSTER_ROLE_BINDING, binding)
    except AlreadyExists:
        return


@cache
def _roles_on(role: str) -> tuple[JsonObject, ...]:
    """Of every plane of this role, with the digests of their rules: asked for at every start."""
    return tuple(_role(name, rules) for name, rules in rules_on(role).items())


def _role(name: str, rules: Sequence[JsonObject]) -> JsonObject:
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


def _binding(name: str, subjects: Sequence[tuple[str, str]]) -> JsonObject:
    return {
        "apiVersion": CLUSTER_ROLE_BINDING.api_version,
        "kind": CLUSTER_ROLE_BINDING.kind,
        "metadata": {"name": name, "labels": _LABELS},
        "roleRef": {"apiGroup": RBAC, "kind": CLUSTER_ROLE.kind, "name": name},
        "subjects": [
            {"apiGroup": RBAC, "kind": kind, "name": subject} for kind, subject in subjects
        ],
    }
