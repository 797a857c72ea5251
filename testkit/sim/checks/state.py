"""The ground truth of a world: every committed row of every plane, and the machines that run.

Checks read this and nothing else; never what the API says about itself.

What happened in a world, line by line. Lines are written when somebody reads them: of nearly
every run nobody ever does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import overload

from datum_compute.api.codec import JsonObject, decode
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, EVENT, LEASE, NAMESPACE
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.plane import HUB, PlaneName, cell_plane
from datum_compute.api.reasons import Reason
from datum_compute.store.journal import Change, Entry, LoadedPlane, ObjectKey, PlaneDeleted
from testkit.sim.provider import Provider

Rows = dict[ObjectKey, JsonObject]


@dataclass(frozen=True, slots=True)
class Step:
    """One row that changes: what it was, and what it is from now on."""

    at_s: float
    plane: str
    version: int
    key: ObjectKey
    before: JsonObject | None
    after: JsonObject | None
    body: bytes | None


@dataclass(slots=True)
class Truth:
    providers: dict[PlaneName, Provider]
    now: Callable[[], float]
    rows: dict[str, Rows] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    # Of each plane and resource, all versions in the order of their commits.
    log: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    writes: int = 0  # without renewals of leases and the expiry of events
    # By plane and version: the version of the row that the write replaced.
    replaced: dict[tuple[str, int], str] = field(default_factory=dict)
    # When a machine of a slot was last seen to run, by "cell namespace/name".
    last_alive_s: dict[str, float] = field(default_factory=dict)
    # When a slot was last seen to lack data that an operator deleted on its cell, by the same.
    lacked_data_s: dict[str, float] = field(default_factory=dict)
    # Since when a deleted instance has had no machine, and its uid, by the same.
    leaving_since_s: dict[str, tuple[float, str]] = field(default_factory=dict)
    # Names on planes that an operator had a hand in.
    tampered: dict[tuple[str, str], None] = field(default_factory=dict)
    emptied: dict[str, None] = field(default_factory=dict)
    restored: dict[str, None] = field(default_factory=dict)  # planes that went back to a backup
    # Objects that a plane lost because its backup is older, until they are written again.
    lost_by_restore: dict[tuple[str, ObjectKey], None] = field(default_factory=dict)
    # Cells that left by force: what they had is given up, wherever it may run on.
    given_up: dict[PlaneName, None] = field(default_factory=dict)
    # Deployments of the hub that went to another cell, or were taken from theirs.
    rebound: dict[ObjectKey, None] = field(default_factory=dict)
    # The generation of a copy that was deleted on its cell, by plane, key and uid of the original.
    deleted_copies: dict[tuple[str, ObjectKey, str], int] = field(default_factory=dict)
    # Cells that were given to another city: the former city, and when it changed.
    former_city: dict[PlaneName, tuple[str, float]] = field(default_factory=dict)
    writes_come_late: bool = False  # some that their senders gave up, or a second time
    clocks_jump: bool = False  # some fault of the world sets a clock
    only_machines_fail: bool = False  # no fault of the world touches a host, a disk or a link
    ready_since_s: dict[PlaneName, float] = field(default_factory=dict)
    _times: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict)

    def take_over(self, image: dict[str, LoadedPlane]) -> None:
        """Rows that were there before the world began."""
        for plane, loaded in image.items():
            self.versions[plane] = loaded.version
            self._times.setdefault(plane, ([self.now()], [loaded.version]))
            self.rows[plane] = {key: _known_row(body) for key, (_, body) in loaded.objects.items()}

    def forget(self, plane: str) -> None:
        """The plane comes back empty: nothing that was known of it counts."""
        self.emptied[plane] = None
        self.versions.pop(plane, None)
        self.rows.pop(plane, None)
        for known in [key for key in self.log if key[0] == plane]:
            del self.log[known]

    def restore(self, image: dict[str, LoadedPlane]) -> None:
        """Planes went back to a backup: what is not in it never was, as far as they know."""
        before = {plane: self.rows.get(plane, {}) for plane in image}
        self.take_over(image)
        for plane in image:
            self.emptied[plane] = self.restored[plane] = None
            lost = [key for key in before[plane] if key not in self.rows[plane]]
            self.lost_by_restore.update(((plane, key), None) for key in lost)

    def apply(self, batch: Sequence[Entry]) -> Iterator[Step]:
        """Take in one commit, row by row; whoever checks sees each row as it becomes true."""
        at_s = self.now()
        for entry in batch:
            if isinstance(entry, PlaneDeleted):
                self.rows.pop(entry.plane, None)
            if isinstance(entry, Change):
                yield self._apply(at_s, entry)

    def _apply(self, at_s: float, change: Change) -> Step:
        expires = change.body is None and change.key.resource == EVENT.storage
        if change.key.resource != LEASE.resource and not expires:
            self.writes += 1
        rows = self.rows.setdefault(change.plane, {})
        before = rows.get(change.key)
        after = None if change.body is None else _row(change.body)
        if after is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = after
            self.lost_by_restore.pop((change.plane, change.key), None)
        if before is not None:
            self.replaced[(change.plane, change.version)] = before["metadata"]["resourceVersion"]
        times, versions = self._times.setdefault(change.plane, ([], []))
        times.append(at_s)
        versions.append(change.version)
        self.log.setdefault((change.plane, change.key.resource), []).append(change.version)
        return Step(at_s, change.plane, change.version, change.key, before, after, change.body)

    def version_before(self, plane: str, age_s: float) -> int:
        """The version the plane had this long ago, or when the world began; 0 if it was empty."""
        times, versions = self._times.get(plane, ([], []))
        index = bisect_right(times, max(0.0, self.now() - age_s))
        return versions[index - 1] if index else 0

    def of_resource(self, plane: str, resource: str) -> Iterator[tuple[ObjectKey, JsonObject]]:
        for key, row in self.rows.get(plane, {}).items():
            if key.resource == resource:
                yield key, row

    def count_late_rollouts(self) -> int:
        """Count the deployments, on all planes, that report a passed progress deadline."""
        rows = (
            row for plane in self.rows for _, row in self.of_resource(plane, DEPLOYMENT.storage)
        )
        return sum(
            condition.get("reason") == Reason.PROGRESS_DEADLINE_EXCEEDED
            for row in rows
            for condition in row.get("status", {}).get("conditions", [])
        )

    def cells_of(self, city: str) -> list[PlaneName]:
        """Those that serve it now; where there is no federation, whoever has machines."""
        cities = {
            cell_plane(key.name): row["metadata"].get("labels", {}).get(TOPOLOGY_CITY)
            for key, row in self.of_resource(HUB, CLUSTER.resource)
        }
        if not cities:
            return list(self.providers)
        return [cell for cell, served in cities.items() if served == city]

    def is_leaving(self, plane: str, namespace: str) -> bool:
        """Whether the namespace is being deleted with everything in it."""
        row = self.rows.get(plane, {}).get(ObjectKey(NAMESPACE.resource, "", namespace))
        return row is not None and is_terminating(row)

    def machines(self) -> Iterator[tuple[PlaneName, str]]:
        """Every machine that is alive, as (cell, id)."""
        for cell, provider in self.providers.items():
            for machine_id in provider.alive():
                yield cell, machine_id


def _row(body: bytes) -> JsonObject:
    """Without who owns which field, of which nothing is to be checked here: half of a row."""
    row: JsonObject = decode(body)
    row["metadata"].pop("managedFields", None)
    return row


# Rows are never changed in place, and many worlds begin with the same ones.
_known_row = lru_cache(maxsize=8192)(_row)


def is_terminating(row: JsonObject) -> bool:
    return bool(row["metadata"].get("deletionTimestamp"))


def condition(row: JsonObject, type_: str) -> JsonObject | None:
    for found in (row.get("status") or {}).get("conditions") or ():
        if found["type"] == type_:
            return dict(found)
    return None


def is_true(row: JsonObject, type_: str) -> bool:
    found = condition(row, type_)
    return found is not None and found["status"] == "True"


class Trace(Sequence[str]):
    """Reads like the list of its lines. Rows are never changed in place, so that a line which is
    written later says the same."""

    def __init__(self) -> None:
        self._entries: list[str | Step] = []

    def committed(self, step: Step) -> None:
        self._entries.append(step)

    def said(self, at_s: float, text: str) -> None:
        self._entries.append(f"{at_s:9.3f} === {text}")

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [_line(entry) for entry in self._entries[index]]
        return _line(self._entries[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def _line(entry: str | Step) -> str:
    """Of a row: virtual time, where, what, and the state in a word."""
    if isinstance(entry, str):
        return entry
    key = entry.key
    what = "deleted" if entry.after is None else _state(entry.after)
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f"{entry.at_s:9.3f} {entry.plane:16} {entry.version:5} {key.resource} {name}: {what}"


def _state(row: JsonObject) -> str:
    parts = ["terminating"] if is_terminating(row) else []
    conditions = (row.get("status") or {}).get("conditions") or ()
    parts += [f"{c['type']}={c['status']}/{c['reason']}" for c in conditions]
    return " ".join(parts) or "stored"
