"""Readiness of a container without a readiness probe: its TCP ports accept connections."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datum_compute.api.containeroptions import Probe
from datum_compute.api.instance import Container, ContainerPort
from datum_compute.api.quantities import mebibytes, millicores
from datum_compute.api.server import ServerSpec

# How often ports are checked, how long a connection may take, and how many failures count.
PORT_CHECK = Probe(period_seconds=5, timeout_seconds=1, failure_threshold=3)


def checked_ports(ports: Iterable[ContainerPort], readiness: Probe | None) -> list[ContainerPort]:
    """Return the ports to check; none if there is a readiness probe, which replaces the check."""
    return [] if readiness is not None else [port for port in ports if port.protocol == "TCP"]


def render_closed_port(number: int, name: str, why: str = "") -> str:
    """Return a message about a port that does not accept connections, and why if that is known."""
    shown = f"port {number} ({name})" if name else f"port {number}"
    return f"{shown} does not accept connections{f': {why}' if why else ''}"


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The most a container may use; 0 if nobody said."""

    millicores: int = 0
    mebibytes: int = 0


def container_limits(spec: ServerSpec) -> dict[str, ContainerLimits]:
    """A container's own limits; those without share what these leave of the machine, in equal
    parts, so that all together never use more than the machine may."""
    found: dict[str, ContainerLimits] = {}
    own = {c.name: _own(c) for c in spec.containers}
    whole = ContainerLimits(
        millicores(spec.resources.cpu) if spec.resources.cpu is not None else 0,
        mebibytes(spec.resources.memory) if spec.resources.memory is not None else 0,
    )
    for container in spec.containers:
        said = own[container.name]
        found[container.name] = ContainerLimits(
            said.millicores or _share(whole.millicores, [o.millicores for o in own.values()]),
            said.mebibytes or _share(whole.mebibytes, [o.mebibytes for o in own.values()]),
        )
    return found


def _own(container: Container) -> ContainerLimits:
    limits = container.resources.limits
    return ContainerLimits(
        millicores(limits.cpu) if limits.cpu is not None else 0,
        mebibytes(limits.memory) if limits.memory is not None else 0,
    )


def _share(whole: int, said: list[int]) -> int:
    silent = sum(1 for amount in said if not amount)
    return max(1, (whole - sum(said)) // silent) if whole else 0
