"""Queries of admission rules about other objects and permissions, and their answers.

A rule returns its queries as values. The embedded server answers them from its store, the webhook
with a client. The rule then decides by the answers alone, so that the same rules run in both, and
tests need only values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo

F = TypeVar("F")


class Write(msgspec.Struct, dict=True):
    """A create or an update. ``old`` is None for a create.

    ``new`` is valid by its schema and has its defaults. ``deprecation_grace_s`` is how long a
    deprecated instance type must remain usable. ``facts`` caches what ``once_per_write`` computes.
    """

    kind: KindInfo[Any]
    namespace: str
    new: JsonObject
    old: JsonObject | None
    now_s: float = 0.0
    deprecation_grace_s: float = 0.0
    facts: dict[Callable[[Write], Any], Any] = msgspec.field(default_factory=dict)

    @cached_property
    def changes_spec(self) -> bool:
        return self.old is None or self.new.get("spec") != self.old.get("spec")


def once_per_write(find: Callable[[Write], F]) -> Callable[[Write], F]:
    """Return ``find`` with a cache on the write: the queries and the check of a rule need the same
    facts."""

    @wraps(find)
    def find_once(write: Write) -> F:
        if find not in write.facts:
            write.facts[find] = find(write)
        fact: F = write.facts[find]
        return fact

    return find_once


class Deletion(msgspec.Struct, frozen=True):
    """A deletion of the stored object ``old``."""

    kind: KindInfo[Any]
    namespace: str
    old: JsonObject


class AccessQuery(msgspec.Struct, frozen=True):
    """Whether the user may do something on the plane of the write."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class ListQuery:
    """All objects of a kind on the plane of the write. Rules share one constant for each query.

    ``catalogue``: those of the platform plane. If that has none, those of the plane of the write.
    """

    kind: KindInfo[Any]
    catalogue: bool = False


Query = AccessQuery | ListQuery


class Answers(msgspec.Struct, frozen=True):
    """The answers to the queries that the rules returned. Reading another one is a bug."""

    allowed: Mapping[AccessQuery, bool] = {}
    listed: Mapping[ListQuery, Sequence[JsonObject]] = {}
