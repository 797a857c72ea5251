"""The kinds a server serves, found by their place in a path, each with its compiled checks.

A write through the main endpoint is checked without its status and a status write only by its
status, so that neither side can be blocked by what the other wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from datum_compute.api.kinds import NAMESPACE, SERVICE_ACCOUNT
from datum_compute.api.meta import KindInfo
from datum_compute.api.reviews import REVIEWS, TOKEN_REQUEST
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
    stored: bool = True  # reviews are answered only

    @property
    def verbs(self) -> tuple[str, ...]:
        if not self.stored:
            return ("create",)
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
        if self.kind.resource == SERVICE_ACCOUNT.resource:
            found["token"] = ("create",)
        return found

    def shown_as(self, subresource: str) -> KindInfo[Any]:
        """The kind that a subresource speaks."""
        return TOKEN_REQUEST if subresource == "token" else self.kind


class Catalogue:
    def __init__(self, kinds: Iterable[KindInfo[Any]]) -> None:
        found = [_served(kind) for kind in kinds]
        found += [replace(_served(kind), stored=False) for kind in REVIEWS]
        self._served = {(s.kind.group, s.kind.version, s.kind.plural): s for s in found}
        self.token_request = replace(_served(TOKEN_REQUEST), stored=False)

    def find(self, group: str, version: str, plural: str) -> Served | None:
        return self._served.get((group, version, plural))

    def all(self) -> list[Served]:
        """Every kind that has objects."""
        return [served for served in self._served.values() if served.stored]

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
    return Served(kind, compiled(main), compiled(schema["properties"]["status"]))


def _stability(version: str) -> tuple[int, int, int, str]:
    """Stable before beta before alpha, then the higher number."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    major, stage, minor = found.groups()
    return (_STAGES[stage], int(major), int(minor or 0), version)
