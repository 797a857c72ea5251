"""How an instance was woken the last time, and where that time went."""

from __future__ import annotations

from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.scale_to_zero import Wake
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.output import one_line
from datum_compute.cli.times import age_since


def wake_document(instance: Instance) -> JsonObject | None:
    wake = instance.status.last_wake
    if wake is None:
        return None
    return {
        "at": wake.at,
        "mode": wake.mode,
        "milliseconds": {**_parts(wake), "total": sum(_parts(wake).values())},
        "failure": wake.failure,
    }


def wake_fields(instance: Instance, now: float) -> list[tuple[str, str]]:
    wake, wish = instance.status.last_wake, instance.spec.scale_to_zero
    found = []
    if wish is not None:
        found.append(("Sleeps", f"after {wish.idle_after} without a connection ({wish.mode})"))
    if wake is not None:
        found.append(("Last wake", f"{age_since(wake.at, now)} ago, {_told(wake)}"))
    return found


def _told(wake: Wake) -> str:
    if wake.failure:
        return f"in vain: {one_line(wake.failure)}"
    parts = ", ".join(f"{name} {took}" for name, took in _parts(wake).items())
    return f"in {sum(_parts(wake).values())} ms from {wake.mode} ({parts})"


def _parts(wake: Wake) -> dict[str, int]:
    return {
        "queue": wake.queue_milliseconds,
        "engine": wake.engine_milliseconds,
        "ready": wake.ready_milliseconds,
        "firstByte": wake.first_byte_milliseconds,
    }
