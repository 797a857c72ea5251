"""The kinds a server serves, found by their place in a path, each with its compiled checks.

A write through the main endpoint is checked without its status and a status write only by its
status, so that neither side can be blocked by what the other wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from datum_compute.api.kinds import NAMESPACE, SERVICE_ACCOUNT, UNSUPPORTED_KINDS
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.json_path import field_names
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.reviews import REVIEWS, TOKEN_REQUEST
from datum_compute.api.schema.derive import PRESERVE, structural_schema
from datum_compute.api.schema.fast_path import compile_fast_check
from datum_compute.api.schema.validate import Check, object_schema
from datum_compute.server.apply.field_shape import ObjectShape, object_shape
from datum_compute.server.discovery.conversion import AS_STORED, VIEWS, Conversion

_VERSION = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]*))?")
_STAGES = {"alpha": 0, "beta": 1, None: 2}
_EACH_ALONE = ("create", "delete", "get", "list", "patch", "update", "watch")
_READ_ONLY = ("get", "list", "watch")
_ALSO_SEVERAL = tuple(sorted((*_EACH_ALONE, "deletecollection")))


@dataclass(frozen=True, slots=True, eq=False)
class ServedResource:
    """One kind as it is served."""

    kind: KindInfo[Any]
    schema: JsonObject
    check_main: Check
    check_status: Check
    make_shape: Callable[[], ObjectShape]  # called at the first write of an object
    conversion: Conversion = AS_STORED
    status_at_first: JsonObject | None = None  # what a new object says before anybody looked at it
    stored: bool = True  # reviews are answered only
    revision: str = ""  # of the definition, for a custom kind
    # Made once, because every request asks for them.
    verbs: tuple[str, ...] = field(init=False)
    subresources: dict[str, tuple[str, ...]] = field(init=False)  # verbs of each

    def __post_init__(self) -> None:
        object.__setattr__(self, "verbs", self._verbs())
        object.__setattr__(self, "subresources", self._subresources())

    @property
    def shape(self) -> ObjectShape:
        return self.make_shape()

    def _verbs(self) -> tuple[str, ...]:
        if not self.stored:
            return ("create",)
        if self.kind.unsupported_message:
            return _READ_ONLY
        # Namespaces are never deleted in bulk: each is emptied first.
        return _EACH_ALONE if is_namespace(self.kind) else _ALSO_SEVERAL

    def _subresources(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        if self.kind.has_status:
            found["status"] = ("get", "patch", "update")
        if self.kind.scale is not None:
            found["scale"] = ("get", "patch", "update")
        if is_namespace(self.kind):
            found["finalize"] = ("update",)
        if self.kind.resource == SERVICE_ACCOUNT.resource:
            found["token"] = ("create",)
        return found

    def shown_as(self, subresource: str) -> KindInfo[Any]:
        """The kind that a subresource speaks."""
        return TOKEN_REQUEST if subresource == "token" else self.kind


@dataclass(frozen=True, slots=True)
class AcceptedNames:
    """The names that a definition reserves in its group, even if it serves no version."""

    definition: str
    group: str
    resources: frozenset[str]
    kinds: frozenset[str]


class ResourceRegistry:
    def __init__(
        self, served: Iterable[ServedResource], accepted: Iterable[AcceptedNames] = ()
    ) -> None:
        self.accepted = tuple(accepted)
        self._served: dict[tuple[str, str, str], ServedResource] = {}
        for one in served:
            # What is there first stays: a definition cannot take the place of a built-in kind.
            place = (one.kind.group, one.kind.version, one.kind.plural)
            self._served.setdefault(place, one)
        self._by_version: dict[str, dict[str, list[ServedResource]]] = {}
        for (group, version, _), one in self._served.items():
            self._by_version.setdefault(group, {}).setdefault(version, []).append(one)
        self._by_storage = self._reachable()

    @classmethod
    def of_kinds(cls, kinds: Iterable[KindInfo[Any]]) -> ResourceRegistry:
        """The kinds given, the reviews, and what clients ask for in vain."""
        own = map(_own_kind, (*kinds, *UNSUPPORTED_KINDS))
        return cls((*own, *map(served_review, REVIEWS)))

    def with_more(
        self, served: Iterable[ServedResource], accepted: Iterable[AcceptedNames] = ()
    ) -> ResourceRegistry:
        return ResourceRegistry((*self._served.values(), *served), accepted)

    def kinds(self) -> list[KindInfo[Any]]:
        return [served.kind for served in self._served.values()]

    def find(self, group: str, version: str, plural: str) -> ServedResource | None:
        return self._served.get((group, version, plural))

    def namespaced_storage(self) -> list[str]:
        """The resources under which the store keeps what lies in namespaces."""
        return sorted({s.kind.storage for s in self._stored() if s.kind.namespaced})

    def kinds_by_storage(self) -> dict[str, KindInfo[Any]]:
        """How the objects of each stored resource can be reached: as they are stored."""
        return self._by_storage

    def _reachable(self) -> dict[str, KindInfo[Any]]:
        found: dict[str, KindInfo[Any]] = {}
        for served in self._stored():
            if not (served.conversion.differs and served.kind.storage in found):
                found[served.kind.storage] = served.kind
        return found

    def kind_named(self, api_version: str, kind: str) -> KindInfo[Any] | None:
        """A stored kind of the group, in the version that was named if that is served."""
        group = api_version.rpartition("/")[0]
        of_group = [s.kind for s in self._stored() if (s.kind.group, s.kind.kind) == (group, kind)]
        same = [k for k in of_group if k.api_version == api_version]
        return next(iter((*same, *of_group)), None)

    def _stored(self) -> list[ServedResource]:
        return [served for served in self._served.values() if served.stored]

    def groups(self) -> list[str]:
        """Named groups; the core group is served apart."""
        return sorted(group for group in self._by_version if group)

    def versions(self, group: str) -> list[str]:
        """The preferred version first."""
        return sorted(self._by_version.get(group, ()), key=_stability, reverse=True)

    def of_version(self, group: str, version: str) -> list[ServedResource]:
        found = self._by_version.get(group, {}).get(version, [])
        return sorted(found, key=lambda served: served.kind.plural)


def is_namespace(kind: KindInfo[Any]) -> bool:
    return kind.plural == NAMESPACE.plural and not kind.group


def served_kind(
    kind: KindInfo[Any],
    schema: JsonObject,
    conversion: Conversion = AS_STORED,
    revision: str = "",
) -> ServedResource:
    whole = object_schema(schema)
    replicas_path = field_names(kind.scale.spec_replicas_path) if kind.scale else None
    shape = cache(
        lambda: object_shape(whole, has_status=kind.has_status, replicas_path=replicas_path or ())
    )
    if not kind.has_status:
        none = compile_fast_check({})
        return ServedResource(
            kind, schema, compile_fast_check(whole), none, shape, conversion, revision=revision
        )
    properties = {name: s for name, s in whole["properties"].items() if name != "status"}
    required = [name for name in schema.get("required", ()) if name != "status"]
    main = {**whole, "properties": properties, "required": required}
    status = whole["properties"].get("status", {"type": "object", PRESERVE: PRESERVE in schema})
    first = None if kind.defined else status.get("default")
    return ServedResource(
        kind,
        schema,
        compile_fast_check(main),
        compile_fast_check(status),
        shape,
        conversion,
        first,
        revision=revision,
    )


@cache
def _own_kind(kind: KindInfo[Any]) -> ServedResource:
    """Made once for all servers of a process: our kinds do not change while it runs."""
    return served_kind(kind, structural_schema(kind), VIEWS.get(kind.resource, AS_STORED))


@cache
def served_review(kind: KindInfo[Any]) -> ServedResource:
    """A kind that is answered and never stored."""
    return replace(served_kind(kind, structural_schema(kind)), stored=False)


def _stability(version: str) -> tuple[int, int, int, str]:
    """Stable before beta before alpha, then the higher number."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    major, stage, minor = found.groups()
    return (_STAGES[stage], int(major), int(minor or 0), version)
