"""A Workload says who changed its spec last, and a Project who made it: history (WorkloadRevision)
takes the one name from there, the plane of the project its first administrator the other.

The server writes it and nobody else can: what a client claims is put right.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.kinds import PROJECT, WORKLOAD
from datum_compute.api.labels import CHANGED_BY, CREATED_BY
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo


def with_author(
    kind: KindInfo[Any], new: JsonObject, old: JsonObject | None, user: str
) -> JsonObject:
    if kind.resource == PROJECT.resource:
        return _marked(new, CREATED_BY, user if old is None else _author(old, CREATED_BY))
    if kind.resource != WORKLOAD.resource:
        return new
    is_changed = old is None or new.get("spec") != old.get("spec")
    return _marked(new, CHANGED_BY, user if is_changed else _author(old, CHANGED_BY))


def _marked(new: JsonObject, mark: str, author: str) -> JsonObject:
    if _author(new, mark) == author:
        return new
    metadata = new.get("metadata") or {}
    marks = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != mark}
    if author:
        marks[mark] = author
    return {**new, "metadata": {**metadata, "annotations": marks}}


def _author(obj: JsonObject | None, mark: str) -> str:
    metadata = (obj or {}).get("metadata") or {}
    return str((metadata.get("annotations") or {}).get(mark, ""))
