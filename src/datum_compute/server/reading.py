"""Admission that reads other objects, straight from the store: nothing is awaited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from datum_compute.admission.reading import READING, read_and_admit
from datum_compute.api.codec import JsonObject, decode
from datum_compute.api.meta import KindInfo
from datum_compute.api.plane import PLATFORM
from datum_compute.server.call import Call
from datum_compute.server.document import same
from datum_compute.server.pipeline import Proposal
from datum_compute.store.store import Store


@dataclass(frozen=True, slots=True)
class StoreReader:
    store: Store
    plane: str

    def listed(self, kind: KindInfo[Any], namespace: str = "") -> list[JsonObject]:
        return self._of(self.plane, kind, namespace or None)

    def catalogue(self, kind: KindInfo[Any]) -> list[JsonObject]:
        kept = self._of(PLATFORM, kind, None) if PLATFORM in self.store.planes() else []
        return kept or self.listed(kind)

    def _of(self, plane: str, kind: KindInfo[Any], namespace: str | None) -> list[JsonObject]:
        found = self.store.snapshot(plane, kind.storage, namespace)
        return [decode(record.body) for record in found.records]


def with_reading_rules(
    store: Store, call: Call, proposal: Proposal, old: JsonObject | None
) -> Proposal:
    """The proposal with what the reading rules found; asked only of what has no fault yet."""
    if call.kind.resource not in READING or proposal.causes or call.route.subresource == "status":
        return proposal
    if old is not None and same(proposal.obj["spec"], old["spec"]):
        return proposal
    found = read_and_admit(StoreReader(store, call.plane), call.kind, proposal.obj, old)
    return replace(proposal, causes=found.causes, warnings=found.warnings)
