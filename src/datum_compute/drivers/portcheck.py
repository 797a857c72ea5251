"""Readiness of a container without a readiness probe: its TCP ports accept connections."""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.containeroptions import Probe
from datum_compute.api.instance import ContainerPort

# How often ports are checked, how long a connection may take, and how many failures count.
PORT_CHECK = Probe(period_seconds=5, timeout_seconds=1, failure_threshold=3)


def checked_ports(ports: Iterable[ContainerPort], readiness: Probe | None) -> list[ContainerPort]:
    """Return the ports to check; none if there is a readiness probe, which replaces the check."""
    return [] if readiness is not None else [port for port in ports if port.protocol == "TCP"]


def render_closed_port(number: int, name: str, why: str = "") -> str:
    """Return a message about a port that does not accept connections, and why if that is known."""
    shown = f"port {number} ({name})" if name else f"port {number}"
    return f"{shown} does not accept connections{f': {why}' if why else ''}"
