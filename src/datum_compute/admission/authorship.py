"""A Workload says who changed its spec last; history (WorkloadRevision) takes the name from there.

The server writes it and nobody else can: what a client claims is put right.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import CHANGED_BY
from datum_compute.api.meta import KindInfo


def with_author(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None, user: str
) -> JsonObject:
    if kind.resource != WORKLOAD.resource:
        return new
    is_changed = old is None or new.get("spec") != old.get("spec")
    author = user if is_changed else _author(old)
    if _author(new) == author:
        return new
    metadata = new.get("metadata") or {}
    marks = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != CHANGED_BY}
    if author:
        marks[CHANGED_BY] = author
    return {**new, "metadata": {**metadata, "annotations": marks}}


def _author(workload: JsonObject | None) -> str:
    metadata = (workload or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(CHANGED_BY, ""))
