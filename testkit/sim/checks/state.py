"""The ground truth of a world: committed rows of every plane, and running machines.

Checks read this and not what the API returns. ``Trace`` is the record of what happened. Its lines
are formatted when they are read, because the trace of most runs is never read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import overload

from datum_compute.api.conditions import Reason
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, EVENT, GRANT, LEASE, NAMESPACE
from datum_compute.api.labels import TOPOLOGY_CITY
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.planes import HUB, PlaneName, cell_plane
from datum_compute.store.journal import Change, Entry, LoadedPlane, ObjectKey, PlaneDeleted
from testkit.sim.provider import Provider

Rows = dict[ObjectKey, JsonObject]

# How long a write may be on its way after it was planned.
IN_FLIGHT_S = 0.05


@dataclass(frozen=True, slots=True)
class RowChange:
    """One changed row, before and after the commit."""

    at_s: float
    plane: str
    version: int
    key: ObjectKey
    before: JsonObject | None
    after: JsonObject | None
    body: bytes | None


@dataclass(slots=True)
class ClusterState:
    providers: dict[PlaneName, Provider]
    now: Callable[[], float]
    rows: dict[str, Rows] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    # All versions of a plane and resource, in commit order.
    commit_log: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    writes: int = 0  # without lease renewals and expired events
    # By plane and version: the version of the row that the write replaced.
    replaced: dict[tuple[str, int], str] = field(default_factory=dict)
    # When an object was created while the world ran, by plane and key.
    created_s: dict[tuple[str, ObjectKey], float] = field(default_factory=dict)
    # When a machine of a slot was last alive, by "cell namespace/name".
    last_alive_s: dict[str, float] = field(default_factory=dict)
    # When a slot last lacked data that an operator deleted on its cell, by the same key.
    lacked_data_s: dict[str, float] = field(default_factory=dict)
    # Since when a deleted instance has no machine, and its uid, by the same key.
    terminating_since_s: dict[str, tuple[float, str]] = field(default_factory=dict)
    # Objects that an operator changed, as (plane, name).
    tampered: dict[tuple[str, str], None] = field(default_factory=dict)
    emptied_planes: dict[str, None] = field(default_factory=dict)
    restored: dict[str, None] = field(
        default_factory=dict
    )  # planes that were restored from a backup
    # Objects that a plane lost because its backup is older, until they are written again.
    lost_by_restore: dict[tuple[str, ObjectKey], None] = field(default_factory=dict)
    # Cells that left by force: their objects and machines are abandoned.
    abandoned_cells: dict[PlaneName, None] = field(default_factory=dict)
    # Deployments of the hub whose binding moved to another cell, or to none.
    rebound: dict[ObjectKey, None] = field(default_factory=dict)
    # The generation of a copy that was deleted on its cell, by plane, key and uid of the original.
    deleted_copies: dict[tuple[str, ObjectKey, str], int] = field(default_factory=dict)
    # Cells whose city was changed: the former city, and the time of the change.
    former_city: dict[PlaneName, tuple[str, float]] = field(default_factory=dict)
    # Grants that were deleted, with the time.
    deleted_grants: dict[tuple[str, ObjectKey], tuple[float, JsonObject]] = field(
        default_factory=dict
    )
    # The spec of a deployment before its last change, and the time of the change.
    former_spec: dict[tuple[str, ObjectKey], tuple[float, JsonObject]] = field(default_factory=dict)
    writes_come_late: bool = False  # writes may arrive after a timeout, or twice
    clocks_jump: bool = False  # a fault of the world sets a clock
    only_machines_fail: bool = False  # no fault of the world affects a host, a disk or a link
    ready_since_s: dict[PlaneName, float] = field(default_factory=dict)
    _times: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict)

    def load_rows(self, image: dict[str, LoadedPlane]) -> None:
        """Load the rows that exist before the world begins."""
        for plane, loaded in image.items():
            self.versions[plane] = loaded.version
            self._times.setdefault(plane, ([self.now()], [loaded.version]))
            self.rows[plane] = {key: _known_row(body) for key, (_, body) in loaded.objects.items()}

    def drop_plane(self, plane: str) -> None:
        """Drop all records of a plane that comes back empty."""
        self.emptied_planes[plane] = None
        self.versions.pop(plane, None)
        self.rows.pop(plane, None)
        for known in [key for key in self.commit_log if key[0] == plane]:
            del self.commit_log[known]

    def restore(self, image: dict[str, LoadedPlane]) -> None:
        """Replace the rows of planes that were restored from a backup."""
        before = {plane: self.rows.get(plane, {}) for plane in image}
        self.load_rows(image)
        for plane in image:
            self.emptied_planes[plane] = self.restored[plane] = None
            lost = [key for key in before[plane] if key not in self.rows[plane]]
            self.lost_by_restore.update(((plane, key), None) for key in lost)

    def apply(self, batch: Sequence[Entry]) -> Iterator[RowChange]:
        """Apply one commit, and yield each changed row after it was applied."""
        at_s = self.now()
        for entry in batch:
            if isinstance(entry, PlaneDeleted):
                self.rows.pop(entry.plane, None)
            if isinstance(entry, Change):
                yield self._apply(at_s, entry)

    def _apply(self, at_s: float, change: Change) -> RowChange:
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
        if before is None:
            self.created_s[(change.plane, change.key)] = at_s
        else:
            self.replaced[(change.plane, change.version)] = before["metadata"]["resourceVersion"]
            self._record_former_spec(at_s, change, before, after)
            if after is None and change.key.resource == GRANT.resource:
                self.deleted_grants[(change.plane, change.key)] = at_s, before
        times, versions = self._times.setdefault(change.plane, ([], []))
        times.append(at_s)
        versions.append(change.version)
        self.commit_log.setdefault((change.plane, change.key.resource), []).append(change.version)
        return RowChange(at_s, change.plane, change.version, change.key, before, after, change.body)

    def _record_former_spec(
        self, at_s: float, change: Change, before: JsonObject, after: JsonObject | None
    ) -> None:
        former = before.get("spec", {})
        is_deployment = change.key.resource == DEPLOYMENT.resource
        if is_deployment and after is not None and after.get("spec", {}) != former:
            self.former_spec[(change.plane, change.key)] = at_s, former

    def version_before(self, plane: str, age_s: float) -> int:
        """Return the version of the plane this long ago, or at the beginning of the world; 0 if it
        was empty."""
        times, versions = self._times.get(plane, ([], []))
        index = bisect_right(times, max(0.0, self.now() - age_s))
        return versions[index - 1] if index else 0

    def rows_of(self, plane: str, resource: str) -> Iterator[tuple[ObjectKey, JsonObject]]:
        for key, row in self.rows.get(plane, {}).items():
            if key.resource == resource:
                yield key, row

    def count_late_rollouts(self) -> int:
        """Count the deployments, on all planes, that report a passed progress deadline."""
        rows = (row for plane in self.rows for _, row in self.rows_of(plane, DEPLOYMENT.storage))
        return sum(
            condition.get("reason") == Reason.PROGRESS_DEADLINE_EXCEEDED
            for row in rows
            for condition in row.get("status", {}).get("conditions", [])
        )

    def cells_of(self, city: str) -> list[PlaneName]:
        """Return the cells that serve the city; without federation, all cells with machines."""
        cities = {
            cell_plane(key.name): row["metadata"].get("labels", {}).get(TOPOLOGY_CITY)
            for key, row in self.rows_of(HUB, CLUSTER.resource)
        }
        if not cities:
            return list(self.providers)
        return [cell for cell, served in cities.items() if served == city]

    def is_namespace_terminating(self, plane: str, namespace: str) -> bool:
        """Return True if the namespace is being deleted."""
        row = self.rows.get(plane, {}).get(ObjectKey(NAMESPACE.resource, "", namespace))
        return row is not None and is_terminating(row)

    def machines(self) -> Iterator[tuple[PlaneName, str]]:
        """Yield every live machine as (cell, id)."""
        for cell, provider in self.providers.items():
            for machine_id in provider.alive():
                yield cell, machine_id


def _row(body: bytes) -> JsonObject:
    """Decode a row without ``managedFields``: half of its size, and no check needs them."""
    row: JsonObject = decode(body)
    row["metadata"].pop("managedFields", None)
    return row


# Rows are never changed in place, and many worlds begin with the same rows, so rows are cached.
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
    """A sequence of formatted lines. Rows are never changed in place, so a line is formatted only
    when it is read."""

    def __init__(self) -> None:
        self._entries: list[str | RowChange] = []

    def add_change(self, change: RowChange) -> None:
        self._entries.append(change)

    def add_message(self, at_s: float, text: str) -> None:
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


def _line(entry: str | RowChange) -> str:
    """Format a row: virtual time, plane, version, object and a summary of its state."""
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
