"""The settings of every process. ``settings.py`` turns their values into dataclasses.

To add a setting: a line here, and a field in settings.py. Its name is contract once released.
"""

from __future__ import annotations

import click

from datum_compute.app.settings.feature_gates import parse_gates
from datum_compute.app.settings.resolve import Program, Setting, read_server_config
from datum_compute.app.settings.values import (
    ADDRESS,
    CAPACITY,
    CELLS,
    COUNT,
    DNS_LABEL,
    DURATION,
    FILE,
    HOST,
    NAMES,
    PLANE,
    PORT,
    SECONDS,
    ParsedText,
)
from datum_compute.controllers.context import CellProbing
from datum_compute.controllers.registry import FEATURES
from datum_compute.server.flowcontrol.control import FlowLimits
from datum_compute.server.http.send_budget import MIB, PortLimits
from datum_compute.telemetry.logs import FORMATS, LEVELS

MILO, SINGLE, LIST = "milo", "single", "list"
FEDERATED = "federated"
ONLY_CELL = "single"  # the name of the cell in single-cluster mode

_LIMITS = PortLimits()
_FLOWS = FlowLimits()
_PROBING = CellProbing()


# --- Settings that several processes have

_LISTENER = (
    Setting("port", "Port; 0: the port of the last run, else a free one.", default="0", type=PORT),
    Setting(
        "listen",
        "Address to listen on; 0.0.0.0: all addresses of this machine.",
        default="127.0.0.1",
        type=HOST,
        metavar="ADDRESS",
    ),
    Setting(
        "server-names",
        "Additional host names and addresses in the server certificate.",
        default="",
        type=NAMES,
        metavar="NAME,...",
    ),
)
_MACHINES = (
    Setting(
        "driver",
        "What runs the instances. auto: the driver of the last run, else containers if a "
        "container engine responds, else simulated.",
        default="auto",
        type=click.Choice(["auto", "containers", "simulated"]),
    ),
    Setting(
        "engine",
        "Socket of podman or Docker; default: the first usual socket that answers.",
        default="",
        metavar="SOCKET",
    ),
    Setting(
        "ingress",
        "What serves published ports. inside: this process. process: compute-ingress, which "
        "continues while this process is stopped. auto: as in the last run, else inside.",
        default="auto",
        type=click.Choice(["auto", "inside", "process"]),
    ),
)
_FLOW_LIMITS = (
    Setting(
        "waiting-requests-per-user-max",
        "Requests of one user on one plane that may wait on a busy server; others get 429.",
        default=str(_FLOWS.flow_requests_max),
        type=COUNT,
    ),
    Setting(
        "waiting-requests-max",
        "Waiting requests per priority level; above it the user with most of them gets 429.",
        default=str(_FLOWS.level_requests_max),
        type=COUNT,
    ),
    Setting(
        "request-wait-seconds-max",
        "A request of a user that waits longer gets 429.",
        default=str(_FLOWS.wait_max_s),
        type=SECONDS,
    ),
)
_CONNECTION_LIMITS = tuple(
    Setting(flag, meaning, default=str(default), type=COUNT)
    for flag, default, meaning in (
        (
            "connections-max",
            _LIMITS.connections_max,
            "Connections of users; fewer if the limit of open files is lower.",
        ),
        (
            "connections-reserved",
            _LIMITS.reserved_connections,
            "Additional connections that only controllers, cells and operators can use.",
        ),
        (
            "connections-per-user-max",
            _LIMITS.connections_per_user_max,
            "Connections of one user.",
        ),
        (
            "anonymous-connections-max",
            _LIMITS.anonymous_connections_max,
            "Connections without valid credentials.",
        ),
        (
            "anonymous-connections-per-address-max",
            _LIMITS.anonymous_connections_per_address_max,
            "Connections of one address without valid credentials.",
        ),
        (
            "unsent-mebibytes-max",
            _LIMITS.unsent_bytes_max // MIB,
            "Unread data of all clients; above it the server closes the slowest connections.",
        ),
        (
            "unsent-mebibytes-per-user-max",
            _LIMITS.unsent_bytes_per_user_max // MIB,
            "Unread data of the clients of one user.",
        ),
    )
)
_HEARTBEAT = (
    Setting(
        "heartbeat-seconds",
        "Interval of heartbeats from a cell to the hub; Karmada probes its members itself.",
        default="10.0",
        type=SECONDS,
    ),
    Setting(
        "capacity",
        "Capacity that the cell reports, such as cpu=64,memory=256Gi,instances=100.",
        default="",
        type=CAPACITY,
        metavar="RESOURCE=AMOUNT,...",
    ),
)
_CELL_PROBING = (
    Setting(
        "cell-probe-seconds",
        "Interval at which the hub probes every cell.",
        default=str(_PROBING.probe_s),
        type=SECONDS,
    ),
    Setting(
        "cell-grace-seconds",
        "A cell that does not respond for this long is reported as unreachable.",
        default=str(_PROBING.grace_s),
        type=SECONDS,
    ),
)
_BOOT_TIME = Setting(
    "simulated-boot-seconds",
    "Boot time of simulated machines.",
    default="0.0",
    type=SECONDS,
)
_QUOTA = Setting(
    "enforce-quota",
    "Start instances only with quota. --no-enforce-quota: the process claims nothing and clears "
    "the Quota gate of its instances with the reason QuotaDisabled.",
    default=True,
)
_DEPRECATION_GRACE = Setting(
    "instance-type-deprecation-grace-period",
    "A deprecated instance type cannot be disabled for this long, such as 1440h or 90m.",
    default="1440h",
    type=DURATION,
)
_TELEMETRY = (
    Setting("log-level", "Minimum level of log lines.", default="info", type=click.Choice(LEVELS)),
    Setting(
        "log-format",
        "Format of log lines: text, or one JSON object per line.",
        default="console",
        type=click.Choice(FORMATS),
    ),
    Setting(
        "otlp-endpoint",
        "Collector of trace spans (requires the extra otel); default: no spans.",
        default="",
        variable="OTEL_EXPORTER_OTLP_ENDPOINT",
        metavar="URL",
    ),
)


# --- Settings of compute-manager


_PLANES = (
    Setting(
        "mode",
        "federated: every plane is a context of the kubeconfig. single: one API server is "
        "platform, project and cell, without a hub.",
        default=FEDERATED,
        type=click.Choice([SINGLE, FEDERATED]),
    ),
    Setting(
        "context",
        "Context of an API server that is not named as a plane; default: the current context.",
        default="",
        metavar="NAME",
    ),
    Setting(
        "project",
        "Name of the project where there is only one.",
        default="default",
        type=DNS_LABEL,
        metavar="NAME",
    ),
    Setting(
        "cluster-name",
        "Name of the cell that the API server of --context is, if no context is named "
        f"cell/<name>; default in single-cluster mode: {ONLY_CELL}.",
        type=DNS_LABEL,
        metavar="NAME",
    ),
    Setting(
        "discovery-mode",
        "How projects are found. milo: Projects of the platform, each a path of its API. list: "
        "every context named project/<name>. single: one API server is the only project and the "
        "platform.",
        default=MILO,
        type=click.Choice([MILO, LIST, SINGLE]),
    ),
    Setting(
        "project-kubeconfig",
        "Kubeconfig of the projects, if it is not --kubeconfig.",
        type=FILE,
        metavar="FILE",
    ),
    Setting(
        "discovery-kubeconfig",
        "Kubeconfig of the platform, if it is not --kubeconfig: its context platform, or the "
        "current context.",
        type=FILE,
        metavar="FILE",
    ),
    Setting(
        "quota-kubeconfig",
        "Kubeconfig for quota claims, if it is not the kubeconfig of the projects: its contexts "
        "project/<name>, else the path of the project (milo) or the API server of the current "
        "context.",
        type=FILE,
        metavar="FILE",
    ),
    Setting(
        "federation-kubeconfig",
        "Kubeconfig of the hub, if it is not --kubeconfig.",
        type=FILE,
        metavar="FILE",
    ),
    Setting(
        "federation-context",
        "Context of the hub in --federation-kubeconfig; default: the current context.",
        default="",
        metavar="NAME",
    ),
)
_LEADER_ELECTION = (
    Setting(
        "leader-elect",
        "Run controllers only while holding a Lease for each group of them.",
        default=True,
    ),
    Setting(
        "leader-election-namespace",
        "Namespace of the Leases.",
        default="kube-system",
        metavar="NAME",
    ),
    Setting(
        "leader-election-name",
        "Prefix of the names of the Leases.",
        default="compute-manager",
        metavar="NAME",
    ),
    Setting(
        "leader-election-plane",
        "Hold a single Lease with exactly this name, on this plane.",
        type=PLANE,
        metavar="PLANE",
    ),
)


def _tls_port(name: str, purpose: str) -> tuple[Setting, ...]:
    return (
        Setting(f"{name}-address", purpose, type=ADDRESS, metavar="HOST:PORT"),
        *_certificate(name),
    )


def _certificate(name: str) -> tuple[Setting, ...]:
    return (
        Setting(
            f"{name}-certificate",
            "Certificate of that port, as PEM; a changed file is loaded again.",
            type=FILE,
            metavar="FILE",
        ),
        Setting(
            f"{name}-key",
            "Key of the certificate; without both files the state directory gets a self-signed "
            "certificate.",
            type=FILE,
            metavar="FILE",
        ),
    )


_PORTS = (
    Setting(
        "metrics-address",
        "Address of /metrics and /healthz; an address other than loopback needs "
        "--metrics-token-file.",
        type=ADDRESS,
        metavar="HOST:PORT",
    ),
    Setting("metrics-tls", "Serve --metrics-address over TLS.", default=False),
    *_certificate("metrics"),
    Setting(
        "metrics-token-file",
        "File with the bearer token that clients of /metrics must send.",
        type=FILE,
        metavar="FILE",
    ),
    Setting(
        "health-probe-bind-address",
        "Address of /healthz and /readyz; they contain no data, so any address is safe.",
        type=ADDRESS,
        metavar="HOST:PORT",
    ),
    *_tls_port(
        "webhook", "Address that answers AdmissionReviews of API servers over TLS (deploy/webhook)."
    ),
    Setting(
        "webhook-client-authority",
        "Authority that signs the certificates of callers; default: all callers are accepted.",
        type=FILE,
        metavar="FILE",
    ),
    *_tls_port(
        "gateway", "Address that serves logs, usage and commands of instances to users, over TLS."
    ),
)


# --- Processes


COMPUTE_SERVER = Program(
    "compute-server",
    "Serve every plane.",
    (
        Setting("state-dir", "Directory of all data (required).", type=FILE, metavar="DIRECTORY"),
        *_LISTENER,
        *_MACHINES,
        *_FLOW_LIMITS,
        Setting(
            "cells",
            "One cell per city; default: the cells of the last run, else dfw,iad,lhr,syd.",
            type=CELLS,
            metavar="NAME,...",
        ),
        Setting(
            "controllers",
            "Run controllers; --no-controllers: serve planes for a compute-manager.",
            default=True,
        ),
        Setting(
            "cells-inside",
            "Run cells in this process; --no-cells-inside: cells are processes that join.",
            default=True,
        ),
        *_CELL_PROBING,
        Setting(
            "cell-credential-lifetime",
            "Lifetime of the certificate of a cell; the cell renews it before it ends.",
            default="720h",
            type=DURATION,
        ),
        *_CONNECTION_LIMITS,
        _BOOT_TIME,
        _QUOTA,
        _DEPRECATION_GRACE,
        *_TELEMETRY,
    ),
)
COMPUTE_CELL = Program(
    "compute-cell",
    "Serve the plane of one cell that has joined a hub.",
    (
        Setting(
            "state-dir",
            "Directory of all data, prepared by `cell join` (required).",
            type=FILE,
            metavar="DIRECTORY",
        ),
        *_LISTENER,
        *_MACHINES,
        *_FLOW_LIMITS,
        *_HEARTBEAT,
        *_CONNECTION_LIMITS,
        _BOOT_TIME,
        _QUOTA,
        *_TELEMETRY,
    ),
)
COMPUTE_MANAGER = Program(
    "compute-manager",
    "Run compute controllers against the planes.",
    (
        Setting(
            "server-config",
            "File of kind WorkloadOperator: discovery, webhook and metrics of this manager. "
            "Flags, the environment and --config take precedence.",
            type=FILE,
            metavar="FILE",
            is_eager=True,  # before the settings that the file contains
            callback=read_server_config,
        ),
        Setting(
            "kubeconfig",
            "Kubeconfig; its contexts hub, project/<name> and cell/<name> are the planes "
            "(required).",
            variable="KUBECONFIG",
            type=FILE,
            metavar="FILE",
        ),
        Setting(
            "state-dir",
            "Directory of simulated machines and self-signed certificates (required).",
            type=FILE,
            metavar="DIRECTORY",
        ),
        Setting("enable-management-controllers", "Run the controllers of projects.", default=False),
        Setting("enable-cell-controllers", "Run the controllers of cells.", default=False),
        Setting(
            "enable-propagator",
            "Run the propagator, which replaces Karmada on the hub.",
            default=False,
        ),
        Setting(
            "driver",
            "What runs the instances of cells. pods: the cluster of the cell.",
            default="simulated",
            type=click.Choice(["simulated", "pods"]),
        ),
        *_HEARTBEAT,
        *_PLANES,
        Setting(
            "feature-gates",
            f"Features to switch off (all are on): {', '.join(FEATURES)}.",
            default="",
            type=ParsedText("name=bool", parse_gates),
            metavar="NAME=BOOL,...",
        ),
        *_LEADER_ELECTION,
        *_CELL_PROBING,
        *_PORTS,
        _QUOTA,
        _DEPRECATION_GRACE,
        _BOOT_TIME,
        *_TELEMETRY,
    ),
)
PROGRAMS = (COMPUTE_SERVER, COMPUTE_CELL, COMPUTE_MANAGER)
