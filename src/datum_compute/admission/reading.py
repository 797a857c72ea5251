"""Rules that must read other objects. They run after the rules of ``chain.py`` found no fault.

A rule is a pure function of (reader, new, old) and yields causes (the write is refused) and
warnings (it is stored, and the caller is told). Like those of the chain it is asked only when
something besides metadata and status changed. The reader is the embedded server's store, or a
client of the plane in a webhook; what it answers may be a moment old.
To add a rule: write it in the file of what it is about and list it in ``READING``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from datum_compute.admission import sizes
from datum_compute.admission.findings import Finding, Warned
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta import KindInfo


class Reader(Protocol):
    """Objects of the plane that is written to, and of the platform's catalogue."""

    def listed(self, kind: KindInfo[Any], namespace: str = "") -> list[JsonObject]:
        """Those of the plane that is written to."""
        ...

    def catalogue(self, kind: KindInfo[Any]) -> list[JsonObject]:
        """Those that operators keep for all projects; of the same plane where there is no other."""
        ...


ReadingRule = Callable[[Reader, JsonObject, JsonObject | None], Iterable[Finding]]

READING: Mapping[str, tuple[ReadingRule, ...]] = {
    WORKLOAD.resource: (sizes.size_is_offered,),
}


@dataclass(frozen=True, slots=True)
class Findings:
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()


def read_and_admit(
    reader: Reader, kind: KindInfo[Any], new: JsonObject, old: JsonObject | None
) -> Findings:
    found = [f for rule in READING.get(kind.resource, ()) for f in rule(reader, new, old)]
    return Findings(
        causes=tuple(f for f in found if isinstance(f, Cause)),
        warnings=tuple(f.text for f in found if isinstance(f, Warned)),
    )
