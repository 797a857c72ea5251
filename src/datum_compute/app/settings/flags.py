"""Flags that several processes have; ``settings.py`` says which process has which."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datum_compute.app.settings.values import (
    LOOPBACK,
    address_value,
    capacity_value,
    count_value,
    dns_label_value,
    duration_value,
    host_value,
    names_value,
    port_value,
    seconds_value,
)
from datum_compute.controllers.context import CellProbing
from datum_compute.controllers.federation import instances as quarantine
from datum_compute.controllers.network import networks as defaultnetwork
from datum_compute.controllers.platform import instance_types as catalogue
from datum_compute.controllers.platform import instance_types as instancetype
from datum_compute.controllers.workload import workload as revision
from datum_compute.runtime.controller import Controller
from datum_compute.server.flowcontrol.control import FlowLimits
from datum_compute.server.http.send_budget import MIB, PortLimits
from datum_compute.telemetry.logs import FORMATS, LEVELS


def add_serving(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--state-dir", type=Path, help="where everything is kept (required)")
    parser.add_argument(
        "--port", type=port_value, default=0, help="0 is the one last used, or any free one"
    )
    parser.add_argument(
        "--listen",
        type=host_value,
        default=LOOPBACK,
        metavar="ADDRESS",
        help="address of this machine to listen on; 0.0.0.0 is every one",
    )
    parser.add_argument(
        "--server-names",
        type=names_value,
        default=(),
        metavar="NAME,...",
        help="names and addresses by which others reach it, for its certificate",
    )
    parser.add_argument(
        "--driver",
        choices=("auto", "containers", "simulated"),
        default="auto",
        help="what runs the instances; auto: as in the last run, else containers if an engine "
        "answers",
    )
    parser.add_argument(
        "--engine",
        default="",
        metavar="SOCKET",
        help="socket of podman or Docker; else the first of the usual ones that answers",
    )


def add_webhook(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--webhook-address",
        type=address_value,
        metavar="HOST:PORT",
        help="answer AdmissionReviews of API servers there, over TLS (deploy/webhook)",
    )
    for name, text in (
        ("certificate", "certificate of that port, as PEM; read again when it changes"),
        ("key", "its key; without both files a certificate is made in the state directory"),
        ("client-authority", "authority of the API servers that may ask; without it all may"),
    ):
        parser.add_argument(f"--webhook-{name}", type=Path, metavar="FILE", help=text)


def add_gateway(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gateway-address",
        type=address_value,
        metavar="HOST:PORT",
        help="answer there, over TLS, what people ask about instances: logs, usage, commands",
    )
    for name, text in (
        ("certificate", "certificate of that port, as PEM; read again when it changes"),
        ("key", "its key; without both files a certificate is made in the state directory"),
    ):
        parser.add_argument(f"--gateway-{name}", type=Path, metavar="FILE", help=text)


def add_grace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--instance-type-deprecation-grace-period",
        type=duration_value,
        default="1440h",
        metavar="DURATION",
        help="how long a deprecated instance type cannot be disabled, such as 1440h or 90m",
    )


def add_heartbeat(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--heartbeat-seconds",
        type=seconds_value,
        default=10.0,
        metavar="SECONDS",
        help="how often a cell tells the hub that it lives; Karmada asks its members itself",
    )
    parser.add_argument(
        "--capacity",
        type=capacity_value,
        default={},
        metavar="RESOURCE=AMOUNT,...",
        help="what the cell has, such as cpu=64,memory=256Gi,instances=100; the hub shows it",
    )


def add_boot_time(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simulated-boot-seconds",
        type=seconds_value,
        default=0.0,
        metavar="SECONDS",
        help="how long simulated machines take to boot",
    )


def add_telemetry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--log-level", choices=LEVELS, default="info", help="what is worth a line")
    parser.add_argument(
        "--log-format", choices=FORMATS, default="console", help="for people, or one JSON object"
    )
    parser.add_argument(
        "--otlp-endpoint",
        default="",
        metavar="URL",
        help="where spans go (needs the extra otel); none are made without it",
    )


def add_switch(
    parser: argparse.ArgumentParser, name: str, *, text: str, default: bool = False
) -> None:
    parser.add_argument(
        f"--{name}", action=argparse.BooleanOptionalAction, default=default, help=text
    )


# --- Flags that say where planes are: the mode of a manager, how projects are found, and the hub
# ``reached_planes.py`` makes connections of them.


MILO, SINGLE, LIST = "milo", "single", "list"
ONLY_CELL = "single"


@dataclass(frozen=True, slots=True)
class SingleClusterSettings:
    """How one API server is seen where no context of the kubeconfig is named as a plane."""

    project: str = "default"  # the only one; whose quota counts
    cluster: str = ""  # the name of the cell, if it was given one
    context: str = ""  # of the kubeconfig; the current one if it is left out

    @property
    def only_cell(self) -> str:
        """The name of the cell where there is no federation."""
        return self.cluster or ONLY_CELL


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """Where the hub is, if not in the kubeconfig of the other planes."""

    kubeconfig: Path
    context: str


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """How projects are found, and the file that leads to them, if it is another."""

    mode: str = MILO
    kubeconfig: Path | None = None


def add_mode(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mode",
        choices=("auto", "single", "federated"),
        default="auto",
        help="single: one API server is everything, without a hub; auto takes that for granted "
        "when both groups run and no context of the kubeconfig is named as a plane",
    )
    parser.add_argument(
        "--context",
        default="",
        metavar="NAME",
        help="the context of an API server that is not named as a plane, instead of the current",
    )
    parser.add_argument(
        "--project",
        type=dns_label_value,
        default="default",
        metavar="NAME",
        help="where there is one project only: its name",
    )
    parser.add_argument(
        "--cluster-name",
        type=dns_label_value,
        metavar="NAME",
        help="the cell that the API server of the kubeconfig is, if no context is named as one; "
        f"without a federation {ONLY_CELL} if left out",
    )


def add_discovery(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--discovery-mode",
        choices=(MILO, LIST, SINGLE),
        default=MILO,
        help="how projects are found. milo: as Projects of the platform, each a path of its API; "
        "list: every context named project/<name>; single: one API server is the only project, "
        "and the platform too",
    )
    parser.add_argument(
        "--project-kubeconfig",
        type=Path,
        metavar="FILE",
        help="what leads to the projects, where they have a file of their own",
    )
    parser.add_argument(
        "--federation-kubeconfig",
        type=Path,
        metavar="FILE",
        help="the hub, where it has a file of its own",
    )
    parser.add_argument(
        "--federation-context",
        default="",
        metavar="NAME",
        help="its context in that file, instead of the current one",
    )


# --- Settings about cells that have joined: how long the hub waits for them, and how long what it
# gave them is good.


CELL_CREDENTIAL_S = 30 * 24 * 3600.0


def add_patience(parser: argparse.ArgumentParser) -> None:
    usual = CellProbing()
    for name, default, text in (
        ("cell-probe-seconds", usual.probe_s, "how often the hub asks a cell whether it is there"),
        ("cell-grace-seconds", usual.grace_s, "how long a cell may be silent before that is said"),
    ):
        parser.add_argument(
            f"--{name}", type=seconds_value, default=default, metavar="SECONDS", help=text
        )


def add_credential_lifetime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cell-credential-lifetime",
        type=duration_value,
        default="720h",
        metavar="DURATION",
        help="how long the certificate of a cell is good; cells renew it well before it ends",
    )


# --- What of a manager can be switched off: ``--feature-gates Name=false``
# A gate is a group of controllers without which nothing that others do waits or is left behind. To
# add one: a line in ``GATES``.


Gates = Mapping[str, bool]

GATES: dict[str, tuple[Controller[Any], ...]] = {
    # Without it operators keep the instance types of every plane themselves.
    "InstanceTypes": (catalogue.COPY_CONTROLLER, instancetype.INSTANCE_TYPE_CONTROLLER),
    # Without it namespaces have the networks that their users make.
    "DefaultNetworks": (defaultnetwork.DEFAULT_NETWORK_CONTROLLER,),
    # Without it copies on the hub that lead to nobody are only retried.
    "Quarantine": (quarantine.QUARANTINE_CONTROLLER,),
    # Without it there is no history to go back to.
    "WorkloadRevisions": (revision.REVISION_CONTROLLER,),
}


def gates_value(text: str) -> dict[str, bool]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in GATES:
            known = ", ".join(GATES)
            raise argparse.ArgumentTypeError(f"{name!r} is no feature; there are: {known}")
        if value.lower() not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{part!r} is neither {name}=true nor {name}=false")
        found[name] = value.lower() == "true"
    return found


def open_gates(controllers: tuple[Controller[Any], ...], gates: Gates) -> tuple[Any, ...]:
    """Those of the controllers that no closed gate keeps out."""
    shut = [c for name, group in GATES.items() if not gates.get(name, True) for c in group]
    return tuple(c for c in controllers if c not in shut)


def add_gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--feature-gates",
        type=gates_value,
        default={},
        metavar="NAME=BOOL,...",
        help=f"features to switch off (all are on): {', '.join(GATES)}",
    )


# --- Settings for the limits of a port on connections and on data that clients have not read


def add_connection_limits(parser: argparse.ArgumentParser) -> None:
    usual = PortLimits()
    for name, default, text in (
        (
            "connections-max",
            usual.connections_max,
            "connections of users; fewer if the limit of open files is lower",
        ),
        (
            "connections-reserved",
            usual.reserved_connections,
            "additional connections, only for controllers, cells and operators",
        ),
        ("connections-per-user-max", usual.connections_per_user_max, "connections of one user"),
        (
            "anonymous-connections-max",
            usual.anonymous_connections_max,
            "connections without valid credentials",
        ),
        (
            "anonymous-connections-per-address-max",
            usual.anonymous_connections_per_address_max,
            "connections of one address without valid credentials",
        ),
        (
            "unsent-mebibytes-max",
            usual.unsent_bytes_max // MIB,
            "unread data of all clients; above it the server closes the slowest connections",
        ),
        (
            "unsent-mebibytes-per-user-max",
            usual.unsent_bytes_per_user_max // MIB,
            "unread data of the clients of one user",
        ),
    ):
        parser.add_argument(
            f"--{name}", type=count_value, default=default, metavar="NUMBER", help=text
        )


def port_limits(parsed: argparse.Namespace) -> PortLimits:
    return PortLimits(
        connections_max=parsed.connections_max,
        reserved_connections=parsed.connections_reserved,
        connections_per_user_max=parsed.connections_per_user_max,
        anonymous_connections_max=parsed.anonymous_connections_max,
        anonymous_connections_per_address_max=parsed.anonymous_connections_per_address_max,
        unsent_bytes_max=parsed.unsent_mebibytes_max * MIB,
        unsent_bytes_per_user_max=parsed.unsent_mebibytes_per_user_max * MIB,
    )


# --- Settings for the limits on requests that wait on a busy server


def add_flow_limits(parser: argparse.ArgumentParser) -> None:
    usual = FlowLimits()
    for name, default, text in (
        (
            "waiting-requests-per-user-max",
            usual.flow_requests_max,
            "requests of one user on one plane that may wait on a busy server; more get 429",
        ),
        (
            "waiting-requests-max",
            usual.level_requests_max,
            "requests of one priority level that may wait; above it the user with most gets 429",
        ),
    ):
        parser.add_argument(
            f"--{name}", type=count_value, default=default, metavar="NUMBER", help=text
        )
    parser.add_argument(
        "--request-wait-seconds-max",
        type=seconds_value,
        default=usual.wait_max_s,
        metavar="SECONDS",
        help="a request of a user that has waited longer gets 429",
    )


def flow_limits_of(parsed: argparse.Namespace) -> FlowLimits:
    return FlowLimits(
        flow_requests_max=parsed.waiting_requests_per_user_max,
        level_requests_max=parsed.waiting_requests_max,
        wait_max_s=parsed.request_wait_seconds_max,
    )
