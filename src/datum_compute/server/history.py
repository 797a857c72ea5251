"""A list at an earlier version, as far back as the watch log reaches.

The pages of one list and exact versions need it.

The log has the previous record of every change, so the list is the present one with the changes
since then undone.
"""

from __future__ import annotations

from datum_compute.api.errors import Cause, Timeout
from datum_compute.api.planes import PlaneName
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Snapshot, Store


async def snapshot_at(
    store: Store, plane: PlaneName, resource: str, namespace: str | None, version: int
) -> Snapshot:
    """Return the records of a resource at a version. Raises Expired if that is too long ago."""
    check_reached(store, plane, version)
    changes = store.watch(plane, resource, version)
    present = store.snapshot(plane, resource, namespace)
    if present.version == version:
        return present
    records: dict[ObjectKey, Record | None] = {record.key: record for record in present.records}
    events = []
    while more := await changes.next_events(0):
        events += more
    for event in reversed(events):
        if namespace in (None, event.record.key.namespace):
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
