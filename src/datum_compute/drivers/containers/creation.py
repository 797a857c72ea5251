"""A Server as the requests that make its containers. Pure: values in, bodies for the engine out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Literal

from datum_compute.api.codec import JsonObject
from datum_compute.api.instance import Container
from datum_compute.api.process_input import container_input_problems
from datum_compute.api.quantities import mebibytes, millicores
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.containers.images import ImageFacts
from datum_compute.drivers.containers.plan import (
    DEFAULT_NETWORK,
    INIT,
    INIT_MISSING,
    MachinePlan,
    Owner,
    container_name,
    labels_of,
)
from datum_compute.drivers.driver import PermanentError
from datum_compute.drivers.machinedata import MachineData

# What podman leaves a container by default; Docker leaves a little more.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP"),
    *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
)
# Said by us, because the engine's own are refused where the kernel allows less.
OPEN_FILES_MAX, PROCESSES_MAX = 4096, 4096
LOG_BYTES_MAX = "10m"
# PATH of containers whose image sets none.
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WRITABLE = {"/tmp": "rw,mode=1777", "/run": "rw,mode=755"}  # noqa: S108 - in the container


@dataclass(frozen=True, slots=True)
class Limits:
    """The most a container may use; 0 if nobody said."""

    millicores: int = 0
    mebibytes: int = 0


@dataclass(frozen=True, slots=True)
class Making:
    """Everything that containers of one machine are made from."""

    owner: Owner
    machine_id: str
    spec: ServerSpec
    data: MachineData
    plan: MachinePlan
    limits: Mapping[str, Limits]
    folders: Mapping[str, str]  # volume -> folder of this host


def limits_of(spec: ServerSpec) -> dict[str, Limits]:
    """A container's own limits; those without share what these leave of the machine, in equal
    parts, so that all together never use more than the machine may."""
    found: dict[str, Limits] = {}
    own = {c.name: _own(c) for c in spec.containers}
    whole = Limits(
        millicores(spec.resources.cpu) if spec.resources.cpu is not None else 0,
        mebibytes(spec.resources.memory) if spec.resources.memory is not None else 0,
    )
    for container in spec.containers:
        said = own[container.name]
        found[container.name] = Limits(
            said.millicores or _share(whole.millicores, [o.millicores for o in own.values()]),
            said.mebibytes or _share(whole.mebibytes, [o.mebibytes for o in own.values()]),
        )
    return found


def _own(container: Container) -> Limits:
    limits = container.resources.limits
    return Limits(
        millicores(limits.cpu) if limits.cpu is not None else 0,
        mebibytes(limits.memory) if limits.memory is not None else 0,
    )


def _share(whole: int, said: list[int]) -> int:
    silent = sum(1 for amount in said if not amount)
    return max(1, (whole - sum(said)) // silent) if whole else 0


# Whether a container runs under the engine's init process; "missing" if it should and the engine
# has none.
InitUse = Literal["on", "off", "missing"]


def container_body(
    making: Making, container: Container, image: ImageFacts, init: InitUse = "on"
) -> JsonObject:
    """For ``POST /containers/create``."""
    check_container_input(container)
    argv = command_line(container, image)
    security = container.security_context
    body: JsonObject = {
        "Image": image.id,
        "Entrypoint": argv[:1],
        "Cmd": argv[1:],
        "Env": [f"{name}={value}" for name, value in environment(making.data, container).items()],
        "Labels": labels_of(making.owner, making.machine_id, container.name, making.plan),
        "HostConfig": _host_config(making, container),
    }
    # Always stated: engines may be configured to add an init process by default.
    body["HostConfig"]["Init"] = init == "on"
    if init == "missing":
        body["Labels"][INIT] = INIT_MISSING
    if security.run_as_user is not None:
        group = "" if security.run_as_group is None else f":{security.run_as_group}"
        body["User"] = f"{security.run_as_user}{group}"
    if container.name == making.plan.containers[0].name:
        body["Hostname"] = making.machine_id.split("/")[1][:63]
        body["NetworkingConfig"] = _networking(making.plan)
        if making.plan.addresses:  # read by Docker before version 25
            body["MacAddress"] = hardware_address(making.plan.addresses[0])
    return body


def check_container_input(container: Container) -> None:
    for problem in container_input_problems(container):
        raise PermanentError(f"container {container.name}: {problem}")


def command_line(container: Container, image: ImageFacts) -> list[str]:
    """command replaces ENTRYPOINT (and with it what CMD was for), args replace CMD."""
    if container.command:
        return [*container.command, *container.args]
    argv = [*image.entrypoint, *(container.args or image.command)]
    if not argv:
        why = f"container {container.name}: image {container.image} does not say what to run"
        raise PermanentError(f"{why}; give a command")
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
    """Always the same one for an address: who had talked to it before finds its successor at once,
    instead of after the seconds in which the host still remembers the old one."""
    digest = hashlib.sha256(ip_address(address).packed).digest()[:5]
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest))


def network_body(name: str, owner: Owner, prefixes: list[tuple[str, str]]) -> JsonObject:
    """For ``POST /networks/create``."""
    return {
        "Name": name,
        "Driver": "bridge",
        "CheckDuplicate": True,
        "EnableIPv6": any(ip_network(prefix).version == 6 for prefix, _ in prefixes),
        "IPAM": {"Config": [{"Subnet": prefix, "Gateway": way} for prefix, way in prefixes]},
        "Labels": owner.labels,
    }


def _host_config(making: Making, container: Container) -> JsonObject:
    first = making.plan.containers[0].name
    holder = container_name(making.owner, making.machine_id, first)
    security, limits = container.security_context, making.limits[container.name]
    config: JsonObject = {
        "NetworkMode": making.plan.network if container.name == first else f"container:{holder}",
        "Privileged": False,
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "ReadonlyRootfs": security.read_only_root_filesystem,
        "Tmpfs": _WRITABLE if security.read_only_root_filesystem else {},
        "Binds": _binds(making, container),
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
        # Equal to the memory: no swap on top of it.
        config["Memory"] = config["MemorySwap"] = limits.mebibytes * 1024 * 1024
    return config


def _binds(making: Making, container: Container) -> list[str]:
    return [
        f"{making.folders[attached.name]}:{attached.mount_path}:ro"
        for attached in container.volume_attachments
        if attached.name in making.folders
    ]


def _networking(plan: MachinePlan) -> JsonObject:
    """Return the network of a machine, its IP addresses and its hardware address.

    The hardware address of the machine is derived from its IP address. Otherwise a machine that
    takes over the IP address of another one is unreachable until the host's neighbor entry with the
    old hardware address expires, which takes up to 55 s under load. Podman and Docker 25 or newer
    read the hardware address here, for each network.
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
