"""Edges on which every change must lead to exactly one key: counted, and reported if it does not.

Silence would hide a child whose parent cannot be found; a report for every change would be a
flood. So each object is reported once in REPORT_EVERY_S, for each way in which it goes wrong.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName
from datum_compute.runtime.key import Key
from datum_compute.runtime.metrics import RuntimeMetrics

REPORT_INTERVAL_S = 300.0
_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class AmbiguousMapping:
    """A change that led to no key, or to several; material for a Warning event on the object."""

    plane: PlaneName
    kind: KindInfo[Any]
    ref: Ref
    uid: str
    edge: str
    outcome: str  # none or many
    message: str


AmbiguityReporter = Callable[[AmbiguousMapping], None]


class MappingAudit:
    def __init__(self, metrics: RuntimeMetrics | None, report: AmbiguityReporter | None) -> None:
        self._metrics = metrics
        self._report = report
        self._reported: OrderedDict[tuple[str, str, PlaneName, Ref], float] = OrderedDict()

    def record(
        self, edge: str, kind: KindInfo[Any], plane: PlaneName, obj: Any, keys: Sequence[Key]
    ) -> None:
        outcome = "one" if len(keys) == 1 else "many" if keys else "none"
        if self._metrics is not None:
            self._metrics.count_mapping(edge, outcome)
        if outcome != "one" and self._report is not None:
            ref = Ref(obj.metadata.namespace, obj.metadata.name)
            if self._is_due((edge, outcome, plane, ref)):
                found = ", ".join(map(str, keys)) or "nothing"
                message = f"{edge}: exactly one was expected for this {kind.kind}, found {found}"
                uid = obj.metadata.uid
                self._report(AmbiguousMapping(plane, kind, ref, uid, edge, outcome, message))

    def _is_due(self, what: tuple[str, str, PlaneName, Ref]) -> bool:
        now_s = asyncio.get_running_loop().time()
        last_s = self._reported.get(what)
        if last_s is not None and now_s < last_s + REPORT_INTERVAL_S:
            return False
        self._reported[what] = now_s
        self._reported.move_to_end(what)
        if len(self._reported) > _REMEMBERED:
            self._reported.popitem(last=False)
        return True
