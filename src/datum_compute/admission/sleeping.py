"""Rules for scale to zero: what sleeps can be woken, and after a time that makes sense."""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.admission.rules.template import containers
from datum_compute.api.compute.scale_to_zero import IDLE_MAX_S, IDLE_MIN_S, seconds_of
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

_FIELD = "spec.template.spec.scaleToZero"


def idle_times_make_sense(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    wish = new["spec"]["template"]["spec"].get("scaleToZero")
    if wish is None:
        return
    idle_after = wish.get("idleAfter", "30s")
    if not IDLE_MIN_S <= seconds_of(idle_after) <= IDLE_MAX_S:
        why = f'Invalid value: "{idle_after}": must be from 100ms to 24h'
        yield Cause(f"{_FIELD}.idleAfter", "FieldValueInvalid", why)


def sleepers_can_be_woken(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Only a connection to a published port wakes an instance: without one it sleeps for ever."""
    if new["spec"]["template"]["spec"].get("scaleToZero") is None:
        return
    ports = [port for _, container in containers(new) for port in container.get("ports", ())]
    if not any(port.get("protocol", "TCP") == "TCP" for port in ports):
        why = (
            "Invalid value: no container has a TCP port, so nothing could wake an instance; name "
            "the port it listens on (ports: [{name: http, port: 8080}]) or leave scaleToZero out"
        )
        yield Cause(_FIELD, "FieldValueInvalid", why)
