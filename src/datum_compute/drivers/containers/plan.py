"""What a machine is, as its containers carry it in their labels: whoever finds them after a restart
knows all that is needed to look after them. No secret is in it.

A container's name follows from its machine, so the engine itself refuses a second one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_interface

import msgspec

from datum_compute.api.codec import ApiStruct, DecodeError, decode_as, encode
from datum_compute.api.containeroptions import GRACE_S, ImageRecord, Probe
from datum_compute.api.instance import Container, ContainerPort
from datum_compute.api.server import ServerSpec, machine_fingerprint
from datum_compute.drivers.portcheck import PORT_CHECK, checked_ports

_PREFIX = "compute.datumapis.com/"
PLATFORM, CELL = f"{_PREFIX}platform", f"{_PREFIX}cell"
MACHINE, SERVER, CONTAINER = f"{_PREFIX}machine", f"{_PREFIX}server", f"{_PREFIX}container"
PLAN = f"{_PREFIX}plan"
# Label of containers that should have an init process and run without, because the engine has none.
# It is not part of the plan, so that installing an init program recreates no container.
INIT, INIT_MISSING = f"{_PREFIX}init", "missing"
DEFAULT_NETWORK = "bridge"  # the engine's own, for machines that were given no address


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose machines these are: one cell of one platform. Those of others are never touched."""

    platform: str
    cell: str

    @property
    def labels(self) -> dict[str, str]:
        return {PLATFORM: self.platform, CELL: self.cell}


class ContainerPlan(ApiStruct, frozen=True, kw_only=True):
    """One container of the machine."""

    name: str
    image: str
    ports: list[ContainerPort] = []
    readiness: Probe | None = None
    liveness: Probe | None = None
    memory_mebibytes: int = 0  # the most it may use; 0 if nobody said
    digest: str = ""  # of the image that it was made from

    @property
    def readiness_check(self) -> Probe | None:
        """How the container is checked for readiness; None if it declares nothing to check."""
        return self.readiness or (PORT_CHECK if self.checked_ports else None)

    @property
    def checked_ports(self) -> list[ContainerPort]:
        return checked_ports(self.ports, self.readiness)


class MachinePlan(ApiStruct, frozen=True, kw_only=True):
    """The first container holds the network namespace; the others are in it."""

    containers: list[ContainerPlan]
    network: str = DEFAULT_NETWORK
    addresses: list[str] = []
    grace_s: int = GRACE_S
    spec_fingerprint: str = ""  # see MachineState; empty on containers of earlier releases

    @property
    def images(self) -> tuple[ImageRecord, ...]:
        return tuple(
            ImageRecord(name=c.name, image=c.image, digest=c.digest)
            for c in self.containers
            if c.digest
        )


def build_plan(owner: Owner, spec: ServerSpec, memory: Mapping[str, int]) -> MachinePlan:
    addresses = [a.address for i in spec.interfaces for a in i.addresses]
    return MachinePlan(
        containers=[_container(c, memory.get(c.name, 0)) for c in spec.containers],
        network=network_name(owner, prefixes_of(spec)) if addresses else DEFAULT_NETWORK,
        addresses=addresses,
        grace_s=spec.termination_grace_period_seconds,
        spec_fingerprint=machine_fingerprint(spec),
    )


def with_digests(plan: MachinePlan, digests: Mapping[str, str]) -> MachinePlan:
    replace = msgspec.structs.replace
    containers = [replace(c, digest=digests[c.name]) for c in plan.containers]
    return replace(plan, containers=containers)


def _container(container: Container, memory_mebibytes: int) -> ContainerPlan:
    return ContainerPlan(
        name=container.name,
        image=container.image,
        ports=container.ports,
        readiness=container.readiness_probe,
        liveness=container.liveness_probe,
        memory_mebibytes=memory_mebibytes,
    )


def prefixes_of(spec: ServerSpec) -> list[tuple[str, str]]:
    """Each prefix with its gateway."""
    found = [a for i in spec.interfaces for a in i.addresses]
    return [(str(ip_interface(f"{a.address}/{a.prefix_length}").network), a.gateway) for a in found]


def network_name(owner: Owner, prefixes: list[tuple[str, str]]) -> str:
    told = " ".join(prefix for prefix, _ in prefixes)
    return f"datum-{owner.cell}-{_digest(owner.platform, told)}"


def container_name(owner: Owner, machine_id: str, container: str) -> str:
    server = machine_id.split("/")[1]
    return f"datum-{owner.cell}-{server}-{container}-{_digest(owner.platform, machine_id)}"


def labels_of(owner: Owner, machine_id: str, container: str, plan: MachinePlan) -> dict[str, str]:
    return {
        **owner.labels,
        MACHINE: machine_id,
        SERVER: machine_id.rpartition("/")[0],
        CONTAINER: container,
        PLAN: encode(plan).decode(),
    }


def read_plan(labels: Mapping[str, str]) -> MachinePlan | None:
    """None if the label is not one of ours, or of a release that we cannot read."""
    try:
        return decode_as(labels.get(PLAN, "").encode(), MachinePlan)
    except DecodeError:
        return None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
