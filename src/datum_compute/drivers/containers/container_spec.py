"""The containers of a Server: their plan, which is kept in labels, and the requests to create them.

- A plan contains all that a process needs to supervise a machine that an earlier process created.
  It contains no secret.
- The name of a container is derived from its machine, so the engine itself rejects a duplicate.
- Everything here is pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_interface, ip_network
from typing import Literal

import msgspec

from datum_compute.api import labels
from datum_compute.api.compute.instance import GRACE_S, Container, ContainerPort, ImageRecord, Probe
from datum_compute.api.compute.server import ServerSpec, machine_fingerprint
from datum_compute.api.meta.codec import ApiStruct, DecodeError, JsonObject, decode_as, encode
from datum_compute.api.meta.names import container_input_problems
from datum_compute.drivers.container_defaults import PORT_CHECK, ContainerLimits, ports_to_check
from datum_compute.drivers.containers.images import ImageInfo
from datum_compute.drivers.driver import MachineData, PermanentError
from datum_compute.drivers.logs import LogOwner

_PREFIX = "compute.datumapis.com/"
PLATFORM, CELL = f"{_PREFIX}platform", f"{_PREFIX}cell"
MACHINE, SERVER, CONTAINER = f"{_PREFIX}machine", f"{_PREFIX}server", f"{_PREFIX}container"
PLAN = f"{_PREFIX}plan"
# Label of containers that should have an init process and run without one, because the engine has
# no init program. It is not part of the plan: installing the program recreates no container.
INIT, INIT_MISSING = f"{_PREFIX}init", "missing"
# The engine's own network, for machines without an assigned address.
DEFAULT_NETWORK = "bridge"
# The default of Podman. Docker's default contains a few more.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
# Set explicitly, because the engine's default limits are rejected on hosts that allow less.
OPEN_FILES_MAX, PROCESSES_MAX = 4096, 4096
LOG_BYTES_MAX = "10m"
# PATH of containers whose image sets none.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# File systems in memory for containers with a read-only root.
_WRITABLE_FOLDERS = {"/tmp": "rw,mode=1777", "/run": "rw,mode=755"}  # noqa: S108 - in the container

# Whether a container runs under the engine's init process; "missing" if it should and the engine
# has none.
InitUse = Literal["on", "off", "missing"]


@dataclass(frozen=True, slots=True)
class ContainerOwner:
    """One cell of one platform. Containers of other owners are never changed."""

    platform: str
    cell: str

    @property
    def labels(self) -> dict[str, str]:
        return {PLATFORM: self.platform, CELL: self.cell}


class ContainerPlan(ApiStruct, frozen=True, kw_only=True):
    """One container of a machine, as far as it is needed after its creation."""

    name: str
    image: str
    ports: list[ContainerPort] = []
    readiness: Probe | None = None
    liveness: Probe | None = None
    memory_mebibytes: int = 0  # its limit; 0 if there is none
    digest: str = ""  # of the image that it was created from

    @property
    def readiness_check(self) -> Probe | None:
        """The probe or port check; None if there is nothing to check."""
        return self.readiness or (PORT_CHECK if self.ports_to_check else None)

    @property
    def ports_to_check(self) -> list[ContainerPort]:
        return ports_to_check(self.ports, self.readiness)


class MachinePlan(ApiStruct, frozen=True, kw_only=True):
    """The first container holds the network namespace; the others join it."""

    containers: list[ContainerPlan]
    network: str = DEFAULT_NETWORK
    addresses: list[str] = []
    grace_s: int = GRACE_S
    # Empty on containers of earlier releases; see MachineState and CrashReport.
    spec_fingerprint: str = ""
    template_hash: str = ""
    owner: LogOwner = LogOwner()

    @property
    def images(self) -> tuple[ImageRecord, ...]:
        return tuple(
            ImageRecord(name=c.name, image=c.image, digest=c.digest)
            for c in self.containers
            if c.digest
        )


def build_plan(owner: ContainerOwner, spec: ServerSpec, memory: Mapping[str, int]) -> MachinePlan:
    addresses = [a.address for i in spec.interfaces for a in i.addresses]
    return MachinePlan(
        containers=[_plan_container(c, memory.get(c.name, 0)) for c in spec.containers],
        network=network_name(owner, network_prefixes(spec)) if addresses else DEFAULT_NETWORK,
        addresses=addresses,
        grace_s=spec.termination_grace_period_seconds,
        spec_fingerprint=machine_fingerprint(spec),
        template_hash=spec.template_hash,
        owner=LogOwner(
            workload=spec.tags.get(labels.WORKLOAD_NAME, ""),
            uid=spec.tags.get(labels.WORKLOAD_UID, ""),
            city=spec.tags.get(labels.CITY_CODE, ""),
        ),
    )


def with_digests(plan: MachinePlan, digests: Mapping[str, str]) -> MachinePlan:
    replace = msgspec.structs.replace
    containers = [replace(c, digest=digests[c.name]) for c in plan.containers]
    return replace(plan, containers=containers)


def _plan_container(container: Container, memory_mebibytes: int) -> ContainerPlan:
    return ContainerPlan(
        name=container.name,
        image=container.image,
        ports=container.ports,
        readiness=container.readiness_probe,
        liveness=container.liveness_probe,
        memory_mebibytes=memory_mebibytes,
    )


def network_prefixes(spec: ServerSpec) -> list[tuple[str, str]]:
    """Return each prefix of the interfaces with its gateway."""
    found = [a for i in spec.interfaces for a in i.addresses]
    return [(str(ip_interface(f"{a.address}/{a.prefix_length}").network), a.gateway) for a in found]


def network_name(owner: ContainerOwner, prefixes: list[tuple[str, str]]) -> str:
    names = " ".join(prefix for prefix, _ in prefixes)
    return f"datum-{owner.cell}-{_digest(owner.platform, names)}"


def container_name(owner: ContainerOwner, machine_id: str, container: str) -> str:
    server = machine_id.split("/")[1]
    return f"datum-{owner.cell}-{server}-{container}-{_digest(owner.platform, machine_id)}"


def container_labels(
    owner: ContainerOwner, machine_id: str, container: str, plan: MachinePlan
) -> dict[str, str]:
    return {
        **owner.labels,
        MACHINE: machine_id,
        SERVER: machine_id.rpartition("/")[0],
        CONTAINER: container,
        PLAN: encode(plan).decode(),
    }


def read_plan(container: Mapping[str, str]) -> MachinePlan | None:
    """Return the plan in the labels of a container.

    Return None if the label is missing or was written by an incompatible release.
    """
    try:
        return decode_as(container.get(PLAN, "").encode(), MachinePlan)
    except DecodeError:
        return None


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class CreationInputs:
    """Everything that determines the containers of one machine."""

    owner: ContainerOwner
    machine_id: str
    spec: ServerSpec
    data: MachineData
    plan: MachinePlan
    limits: Mapping[str, ContainerLimits]
    folders: Mapping[str, str]  # volume -> folder of this host


def container_body(
    inputs: CreationInputs, container: Container, image: ImageInfo, init: InitUse = "on"
) -> JsonObject:
    """Return the body of ``POST /containers/create``."""
    check_container_input(container)
    argv = command_line(container, image)
    security = container.security_context
    body: JsonObject = {
        "Image": image.id,
        "Entrypoint": argv[:1],
        "Cmd": argv[1:],
        "Env": [f"{name}={value}" for name, value in environment(inputs.data, container).items()],
        "Labels": container_labels(inputs.owner, inputs.machine_id, container.name, inputs.plan),
        "HostConfig": _host_config(inputs, container),
    }
    # Always set: engines may be configured to add an init process by default.
    body["HostConfig"]["Init"] = init == "on"
    if init == "missing":
        body["Labels"][INIT] = INIT_MISSING
    if security.run_as_user is not None:
        group = "" if security.run_as_group is None else f":{security.run_as_group}"
        body["User"] = f"{security.run_as_user}{group}"
    if container.name == inputs.plan.containers[0].name:
        body["Hostname"] = inputs.machine_id.split("/")[1][:63]
        body["NetworkingConfig"] = _networking_config(inputs.plan)
        if inputs.plan.addresses:  # read by Docker before version 25
            body["MacAddress"] = hardware_address(inputs.plan.addresses[0])
    return body


def check_container_input(container: Container) -> None:
    for problem in container_input_problems(container):
        raise PermanentError(f"container {container.name}: {problem}")


def command_line(container: Container, image: ImageInfo) -> list[str]:
    """Return the command line: command replaces ENTRYPOINT and CMD, args replace CMD."""
    if container.command:
        return [*container.command, *container.args]
    argv = [*image.entrypoint, *(container.args or image.command)]
    if not argv:
        problem = f"container {container.name}: image {container.image} has no command"
        raise PermanentError(f"{problem}; set the command of the container")
    return argv


def program_paths(program: str, variables: Sequence[str]) -> list[str]:
    """Return the paths at which the engine looks for a program, given the container's environment.

    ``variables`` are ``NAME=value``. The list is empty for a path relative to the working
    directory, which is not checked.
    """
    if "/" in program:
        return [program] if program.startswith("/") else []
    found = [text.partition("=")[2] for text in variables if text.startswith("PATH=")]
    folders = (found[-1] if found else DEFAULT_PATH).split(":")
    return [f"{folder.rstrip('/')}/{program}" for folder in folders if folder.startswith("/")]


def environment(data: MachineData, container: Container) -> Mapping[str, str]:
    if container.name in data.variables:
        return data.variables[container.name]
    return {variable.name: variable.value for variable in container.env}


def hardware_address(address: str) -> str:
    """Return a hardware address that depends only on the IP address.

    The host caches hardware addresses. If a new machine had the IP address of an old one but a
    different hardware address, it would be unreachable until the cached entry expires, which takes
    up to 55 s under load.
    """
    digest = hashlib.sha256(ip_address(address).packed).digest()[:5]
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest))


def network_body(name: str, owner: ContainerOwner, prefixes: list[tuple[str, str]]) -> JsonObject:
    """Return the body of ``POST /networks/create``."""
    return {
        "Name": name,
        "Driver": "bridge",
        "CheckDuplicate": True,
        "EnableIPv6": any(ip_network(prefix).version == 6 for prefix, _ in prefixes),
        "IPAM": {
            "Config": [{"Subnet": prefix, "Gateway": gateway} for prefix, gateway in prefixes]
        },
        "Labels": owner.labels,
    }


def _host_config(inputs: CreationInputs, container: Container) -> JsonObject:
    first = inputs.plan.containers[0].name
    namespace_owner = container_name(inputs.owner, inputs.machine_id, first)
    security, limits = container.security_context, inputs.limits[container.name]
    config: JsonObject = {
        "NetworkMode": inputs.plan.network
        if container.name == first
        else f"container:{namespace_owner}",
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": security.read_only_root_filesystem,
        "Tmpfs": _WRITABLE_FOLDERS if security.read_only_root_filesystem else {},
        "Binds": _volume_binds(inputs, container),
        "RestartPolicy": {"Name": "no"},
        "PidsLimit": PROCESSES_MAX,
        "Ulimits": [
            {"Name": "nofile", "Soft": OPEN_FILES_MAX, "Hard": OPEN_FILES_MAX},
            {"Name": "nproc", "Soft": PROCESSES_MAX, "Hard": PROCESSES_MAX},
        ],
        "LogConfig": {"Type": "json-file", "Config": {"max-size": LOG_BYTES_MAX}},
    }
    if limits.millicores:
        config["NanoCpus"] = limits.millicores * 1_000_000
    if limits.mebibytes:
        # Equal limits: the container gets no swap.
        config["Memory"] = config["MemorySwap"] = limits.mebibytes * 1024 * 1024
    return config


def _volume_binds(inputs: CreationInputs, container: Container) -> list[str]:
    return [
        f"{inputs.folders[attachment.name]}:{attachment.mount_path}:ro"
        for attachment in container.volume_attachments
        if attachment.name in inputs.folders
    ]


def _networking_config(plan: MachinePlan) -> JsonObject:
    """Return the network of a machine, its IP addresses and its hardware address.

    Podman and Docker 25 or newer read the hardware address here, for each network.
    """
    if plan.network == DEFAULT_NETWORK:
        return {}
    addresses: JsonObject = {}
    for address in plan.addresses:
        addresses["IPv6Address" if ":" in address else "IPv4Address"] = address
    endpoint: JsonObject = {"IPAMConfig": addresses}
    if plan.addresses:
        endpoint["MacAddress"] = hardware_address(plan.addresses[0])
    return {"EndpointsConfig": {plan.network: endpoint}}
