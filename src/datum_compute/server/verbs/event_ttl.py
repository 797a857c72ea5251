"""Removes events an hour after they last occurred.

An event can occur again during the sweep, so each removal requires the version that was checked.
"""

from __future__ import annotations

import asyncio
from typing import Any

from datum_compute.api.errors import Conflict, NotFound
from datum_compute.api.kinds import EVENT
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.server.encoding.body import encode_at_version
from datum_compute.store.records import Record
from datum_compute.store.store import Store

EVENT_LIFETIME_S = 3600.0
_BATCH_MAX = 100  # removals that share commits


async def expire_events(store: Store, plane: str, now: float) -> int:
    """Remove the events that have expired, and return their number."""
    events = ((r, decode(r.body)) for r in store.snapshot(plane, EVENT.storage).records)
    expired = [(r, obj) for r, obj in events if now - _last_seen(obj, now) >= EVENT_LIFETIME_S]
    removed = 0
    for start in range(0, len(expired), _BATCH_MAX):
        batch = (_remove(store, plane, r, obj) for r, obj in expired[start : start + _BATCH_MAX])
        removed += sum(await asyncio.gather(*batch))
    return removed


async def _remove(store: Store, plane: str, record: Record, obj: JsonObject) -> bool:
    try:
        await store.delete(plane, record.key, record.version, lambda v: encode_at_version(obj, v))
    except (Conflict, NotFound):
        return False  # changed or removed meanwhile; the next sweep checks it again
    return True


def _last_seen(event: JsonObject, now: float) -> float:
    """Return the latest time of the event. Times in the future are ignored, so that an event of a
    reporter whose clock is ahead expires too."""
    times = (
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max((at for at in map(_seconds, times) if at <= now), default=0.0)


def _seconds(text: Any) -> float:
    return parse_timestamp(text) if isinstance(text, str) else 0.0
