"""Limits and port checks of containers whose spec does not state them.

- Containers without limits share the rest of the machine's CPU and memory equally, so all
  containers together do not exceed the limits of the machine.
- A container without a readiness probe is ready while its TCP ports accept connections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from datum_compute.api.compute.instance import Container, ContainerPort, Probe
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.meta.quantity import mebibytes, millicores

# How often ports are checked, how long a connection may take, and after how many failures in a row
# a container is not ready.
PORT_CHECK = Probe(period_seconds=5, timeout_seconds=1, failure_threshold=3)


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """0 means no limit."""

    millicores: int = 0
    mebibytes: int = 0


def container_limits(spec: ServerSpec) -> dict[str, ContainerLimits]:
    """Return the limits of each container, by name."""
    stated = {c.name: _stated_limits(c) for c in spec.containers}
    machine = ContainerLimits(
        millicores(spec.resources.cpu) if spec.resources.cpu is not None else 0,
        mebibytes(spec.resources.memory) if spec.resources.memory is not None else 0,
    )
    cpu_share = _equal_share(machine.millicores, [o.millicores for o in stated.values()])
    memory_share = _equal_share(machine.mebibytes, [o.mebibytes for o in stated.values()])
    return {
        name: ContainerLimits(own.millicores or cpu_share, own.mebibytes or memory_share)
        for name, own in stated.items()
    }


def _stated_limits(container: Container) -> ContainerLimits:
    limits = container.resources.limits
    return ContainerLimits(
        millicores(limits.cpu) if limits.cpu is not None else 0,
        mebibytes(limits.memory) if limits.memory is not None else 0,
    )


def _equal_share(total: int, stated: list[int]) -> int:
    """Return what each container without a limit gets; 0 if the machine has no limit."""
    unstated = stated.count(0)
    return max(1, (total - sum(stated)) // unstated) if total and unstated else 0


def ports_to_check(ports: Iterable[ContainerPort], readiness: Probe | None) -> list[ContainerPort]:
    """Return the ports to check; none if there is a readiness probe, which replaces the check."""
    return [] if readiness is not None else [port for port in ports if port.protocol == "TCP"]


def render_closed_port(number: int, name: str, error: str = "") -> str:
    """Return a message about a port that does not accept connections."""
    shown = f"port {number} ({name})" if name else f"port {number}"
    return f"{shown} does not accept connections{f': {error}' if error else ''}"
