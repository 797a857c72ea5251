"""What rules may ask of the world around a write, and the answers they get.

Questions are plain values: a rule says beforehand which it has, somebody answers all of them (the
embedded server from its store, the webhook over a client), and the rule judges by the answers
alone. So the same rules run in both, and a test needs nothing but values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo


class Write(msgspec.Struct, frozen=True):
    """What somebody wants to store: a new object, or ``new`` instead of ``old``.

    ``new`` has passed the schema, its defaults are filled in. ``deprecation_grace_s`` is how long
    a deprecated instance type must stay usable.
    """

    kind: KindInfo[Any]
    namespace: str
    new: JsonObject
    old: JsonObject | None
    now_s: float = 0.0
    deprecation_grace_s: float = 0.0

    @property
    def changes_spec(self) -> bool:
        return self.old is None or self.new.get("spec") != self.old.get("spec")


class Removal(msgspec.Struct, frozen=True):
    """What somebody wants to delete, as it is stored."""

    kind: KindInfo[Any]
    namespace: str
    old: JsonObject


class AccessQuery(msgspec.Struct, frozen=True):
    """Whether the user behind the write may do something on the plane that is written to."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class ListQuery(msgspec.Struct, frozen=True):
    """All objects of a kind: of the plane that is written to, or those that operators keep for
    all projects (of the same plane where there is no other)."""

    kind: KindInfo[Any]
    catalogue: bool = False


Question = AccessQuery | ListQuery


class Answers(msgspec.Struct, frozen=True):
    """To every question that was asked; to look for another is a defect."""

    allowed: Mapping[AccessQuery, bool] = {}
    listed: Mapping[ListQuery, Sequence[JsonObject]] = {}
