"""Events go an hour after they last happened: a sweep that somebody with a clock calls.

An event that another one of the same kind renewed in between is younger than it was, so every
removal checks the version it has looked at.
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
_AT_ONCE = 100  # removals that share commits


async def expire_events(store: Store, plane: str, now: float) -> int:
    """Remove what is older than its lifetime; returns how many that were."""
    present = ((r, decode(r.body)) for r in store.snapshot(plane, EVENT.storage).records)
    old = [(r, obj) for r, obj in present if now - _last_seen(obj, now) >= EVENT_LIFETIME_S]
    removed = 0
    for start in range(0, len(old), _AT_ONCE):
        batch = (_remove(store, plane, r, obj) for r, obj in old[start : start + _AT_ONCE])
        removed += sum(await asyncio.gather(*batch))
    return removed


async def _remove(store: Store, plane: str, record: Record, obj: JsonObject) -> bool:
    try:
        await store.delete(plane, record.key, record.version, lambda v: encode_at_version(obj, v))
    except (Conflict, NotFound):
        return False  # renewed or gone meanwhile; the next sweep looks again
    return True


def _last_seen(event: JsonObject, now: float) -> float:
    """The newest time the event tells that has passed; a clock ahead of ours keeps nothing."""
    told = (
        event["metadata"].get("creationTimestamp"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        (event.get("series") or {}).get("lastObservedTime"),
    )
    return max((at for at in map(_seconds, told) if at <= now), default=0.0)


def _seconds(text: Any) -> float:
    return parse_timestamp(text) if isinstance(text, str) else 0.0
