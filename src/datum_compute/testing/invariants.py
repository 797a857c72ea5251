"""What must hold at every commit (safety) and after calm (liveness).

Ground truth is the driver's machines and the committed rows, never a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api.codec import JsonObject, decode
from datum_compute.drivers.simulated import Machine
from datum_compute.store.journal import Change, Entry, ObjectKey


class InvariantBroken(AssertionError):
    """A rule of the platform did not hold; the message says which, where and when."""


class Observer:
    """Sees every commit of a run, keeps the trace, and checks safety."""

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.writes = 0
        self._versions: dict[str, int] = {}
        self._observed: dict[tuple[str, ObjectKey, str], int] = {}

    def check_commit(self, at_s: float, batch: Sequence[Entry]) -> None:
        for entry in batch:
            if isinstance(entry, Change):
                self.writes += 1
                self._check_version(entry)
                body = decode(entry.body) if entry.body is not None else None
                if body is not None:
                    self._check_observed_generation(entry, body)
                self.trace.append(_line(at_s, entry, body))

    def _check_version(self, change: Change) -> None:
        """I9: versions of a plane rise, also across crashes."""
        last = self._versions.get(change.plane, 0)
        if change.version <= last:
            raise InvariantBroken(f"I9: {change.plane} went from {last} to {change.version}")
        self._versions[change.plane] = change.version

    def _check_observed_generation(self, change: Change, body: JsonObject) -> None:
        """I8: a status is never about a generation that does not exist, and never goes back."""
        observed = (body.get("status") or {}).get("observedGeneration", 0)
        generation = body["metadata"].get("generation", 0)
        where = f"{change.plane} {change.key.resource} {change.key.name}"
        if observed > generation:
            raise InvariantBroken(f"I8: {where} observed {observed} of {generation}")
        seen = (change.plane, change.key, body["metadata"]["uid"])
        if observed < self._observed.get(seen, 0):
            raise InvariantBroken(f"I8: {where} went back to {observed}")
        self._observed[seen] = observed


def check_machines(machines: dict[str, Machine], now_s: float) -> None:
    """I1: never two live machines for one slot (an instance's name is deployment and ordinal)."""
    alive: dict[str, str] = {}
    for machine_id, machine in machines.items():
        if machine.gone_from_s is not None and machine.gone_from_s <= now_s:
            continue
        slot = machine_id.rpartition("/")[0]
        if slot in alive:
            raise InvariantBroken(f"I1: two machines for {slot}: {alive[slot]} and {machine_id}")
        alive[slot] = machine_id


def _line(at_s: float, change: Change, body: Any) -> str:
    """One line of the trace: virtual time, where, what, and the state in a word."""
    what = "deleted" if body is None else _state(body)
    key = change.key
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f"{at_s:9.3f} {change.plane:16} {change.version:5} {key.resource} {name}: {what}"


def _state(body: JsonObject) -> str:
    metadata = body["metadata"]
    parts = ["terminating"] if metadata.get("deletionTimestamp") else []
    conditions = (body.get("status") or {}).get("conditions") or ()
    parts += [f"{c['type']}={c['status']}/{c['reason']}" for c in conditions]
    return " ".join(parts) or "stored"
