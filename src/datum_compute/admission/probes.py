"""Rules for the probes of containers, and for as whom they run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.rules.template import containers, one_of
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject

_PROBES = ("readinessProbe", "livenessProbe")


def probes_ask_one_thing(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Exactly one question, and of a port that there is."""
    for path, container in containers(new):
        named = {port["name"] for port in container.get("ports", ())}
        for field in _PROBES:
            probe = container.get(field)
            if probe is not None:
                yield from one_of(f"{path}.{field}", probe, "httpGet", "tcpSocket", "exec")
                yield from _ports(f"{path}.{field}", probe, named)


def groups_come_with_users(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for path, container in containers(new):
        context = container.get("securityContext", {})
        if context.get("runAsGroup") is not None and context.get("runAsUser") is None:
            why = "Required value: runAsGroup needs a user; give both or none"
            yield Cause(f"{path}.securityContext.runAsUser", "FieldValueRequired", why)


def _ports(path: str, probe: JsonObject, named: set[str]) -> Iterator[Cause]:
    for question in ("httpGet", "tcpSocket"):
        port = (probe.get(question) or {}).get("port")
        if isinstance(port, str) and port not in named:
            message = f'Not found: "{port}" is not the name of a port of this container'
            yield Cause(f"{path}.{question}.port", "FieldValueNotFound", message)
