"""I2: no claim is granted beyond the limit. Two pure functions over raw rows, for the observer.

A lower grant takes nothing away from what was granted before, so more than the limit may be in use
for a while; what may not happen is that still more is granted then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import CLAIM, GRANT

# (project plane, consumer, resource type) -> (granted, limit), in base units.
Totals = dict[tuple[str, str, str], tuple[int, int]]


def quota_totals(rows: Iterable[tuple[str, JsonObject]]) -> Totals:
    """Of the objects of every plane, as (plane, body)."""
    totals: Totals = {}

    def add(plane: str, body: JsonObject, resource_type: str, granted: int, limit: int) -> None:
        consumer = body["spec"]["consumerRef"]
        key = (plane, f"{consumer['kind']}/{consumer['name']}", resource_type)
        before = totals.get(key, (0, 0))
        totals[key] = before[0] + granted, before[1] + limit

    for plane, body in rows:
        if body.get("kind") == CLAIM.kind and _is_true(body, "Granted"):
            for request in body["spec"]["requests"]:
                add(plane, body, request["resourceType"], request["amount"], 0)
        elif body.get("kind") == GRANT.kind and not body["metadata"].get("deletionTimestamp"):
            for allowance in body["spec"]["allowances"]:
                amount = sum(bucket["amount"] for bucket in allowance["buckets"])
                add(plane, body, allowance["resourceType"], 0, amount)
    return totals


def quota_problem(before: Mapping[tuple[str, str, str], tuple[int, int]], after: Totals) -> str:
    """What was granted between the two beyond the limit of either, or the empty string."""
    for key in sorted(after):
        granted, limit = after[key]
        granted_before, limit_before = before.get(key, (0, 0))
        if granted > granted_before and granted > max(limit, limit_before):
            plane, consumer, resource_type = key
            return f"I2: {plane}: {consumer} has {granted} of {limit} {resource_type}"
    return ""


def _is_true(body: JsonObject, type_: str) -> bool:
    conditions = (body.get("status") or {}).get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)
