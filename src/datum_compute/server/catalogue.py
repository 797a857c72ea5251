"""The kinds a server serves, found by their place in a path, each with its compiled checks.

A write through the main endpoint is checked without its status and a status write only by its
status, so that neither side can be blocked by what the other wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import KindInfo
from datum_compute.api.schema import structural_schema
from datum_compute.api.structural import Check, compiled

_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]*))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}
_OBJECT_VERBS = ("delete", "get", "list", "patch", "create", "update", "watch")


@dataclass(frozen=True, slots=True)
class Served:
    """One kind as it is served."""

    kind: KindInfo[Any]
    check_main: Check
    check_status: Check
    status_at_first: JsonObject | None = None  # what a new object says before anybody looked at it

    @property
    def verbs(self) -> tuple[str, ...]:
        # Namespaces are never deleted in bulk: each is emptied first.
        several = () if is_namespace(self.kind) else ("deletecollection",)
        return tuple(sorted((*_OBJECT_VERBS, *several)))

    @property
    def subresources(self) -> dict[str, tuple[str, ...]]:
        """Verbs by subresource."""
        found: dict[str, tuple[str, ...]] = {}
        if self.kind.has_status:
            found["status"] = ("get", "patch", "update")
        if is_namespace(self.kind):
            found["finalize"] = ("update",)
        return found


class Catalogue:
    def __init__(self, kinds: Iterable[KindInfo[Any]]) -> None:
        self._served = {(k.group, k.version, k.plural): _served(k) for k in kinds}

    def find(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def all(self) -> list[Served]:
        return list(self._served.values())

    def groups(self) -> list[str]:
        """Named groups; the core group is served apart."""
        return sorted({group for group, _, _ in self._served if group})

    def versions(self, group: str) -> list[str]:
        """The preferred version first."""
        found = {version for at, version, _ in self._served if at == group}
        return sorted(found, key=_stability, reverse=True)

    def of_version(self, group: str, version: str) -> list[Served]:
        found = [s for (g, v, _), s in self._served.items() if (g, v) == (group, version)]
        return sorted(found, key=lambda served: served.kind.plural)


def is_namespace(kind: KindInfo[Any]) -> bool:
    return kind.resource == NAMESPACE.resource


def _served(kind: KindInfo[Any]) -> Served:
    schema = structural_schema(kind)
    if not kind.has_status:
        return Served(kind, compiled(schema), compiled({}))
    properties = {name: s for name, s in schema["properties"].items() if name != "status"}
    required = [name for name in schema.get("required", ()) if name != "status"]
    main = {**schema, "properties": properties, "required": required}
    status = schema["properties"]["status"]
    return Served(kind, compiled(main), compiled(status), status.get("default"))


def _stability(version: str) -> tuple[int, int, int, str]:
    """Stable before beta before alpha, then the higher number."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    major, stage, minor = found.groups()
    return (_STAGES[stage], int(major), int(minor or 0), version)
