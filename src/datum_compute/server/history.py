"""A list as it was at an earlier version, as far back as the watch log reaches.

The log says of every change what it replaced, so the past is the present with the changes since
then taken back. That is what pages of one list and exact versions need.
"""

from __future__ import annotations

from datum_compute.api.errors import Cause, Timeout
from datum_compute.api.plane import PlaneName
from datum_compute.store.journal import ObjectKey
from datum_compute.store.record import Record
from datum_compute.store.store import Snapshot, Store


async def snapshot_at(store: Store, plane: PlaneName, resource: str, version: int) -> Snapshot:
    """All records of a resource at a version; raises Expired when that is too long ago."""
    check_reached(store, plane, version)
    changes = store.watch(plane, resource, version)
    present = store.snapshot(plane, resource)
    if present.version == version:
        return present
    records: dict[ObjectKey, Record | None] = {record.key: record for record in present.records}
    events = []
    while more := await changes.next_events(0):
        events += more
    for event in reversed(events):
        records[event.record.key] = event.previous
    kept = [record for _, record in sorted(records.items()) if record is not None]
    return Snapshot(version, kept)


def check_reached(store: Store, plane: PlaneName, version: int) -> None:
    """A version from the future cannot be answered; the caller may come back for it."""
    present = store.version(plane)
    if version > present:
        raise Timeout(
            f"Too large resource version: {version}, current: {present}",
            causes=[Cause("", "ResourceVersionTooLarge", "Too large resource version")],
            retry_after_s=1,
        )
