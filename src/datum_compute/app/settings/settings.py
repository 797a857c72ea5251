"""Settings of the processes: flag > environment > file > default, merged here and nowhere else.

Every flag ``--some-name`` can also be given as ``DATUM_SOME_NAME`` in the environment and as
``some-name: value`` in a YAML file (``--config FILE``). All three are read by the same parser, so
that each is checked alike; a mistake says where it was made.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datum_compute.admission.rules.instance_type import DEPRECATION_GRACE_S
from datum_compute.api.planes import PlaneName
from datum_compute.app.settings.flags import (
    CELL_CREDENTIAL_S,
    DiscoverySettings,
    FederationSettings,
    Gates,
    SingleClusterSettings,
    add_boot_time,
    add_connection_limits,
    add_credential_lifetime,
    add_discovery,
    add_flow_limits,
    add_gates,
    add_gateway,
    add_grace,
    add_heartbeat,
    add_mode,
    add_patience,
    add_serving,
    add_switch,
    add_telemetry,
    add_webhook,
    flow_limits_of,
    port_limits,
)
from datum_compute.app.settings.sources import merged
from datum_compute.app.settings.values import (
    LOOPBACK,
    address_value,
    cells_value,
    is_loopback,
    plane_value,
    seconds_value,
)
from datum_compute.controllers.context import CellProbing
from datum_compute.server.flowcontrol.control import FlowLimits
from datum_compute.server.http.send_budget import PortLimits


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """How a process tells of itself. Without an endpoint no spans are made."""

    log_level: str
    log_format: str
    otlp_endpoint: str


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The all-in-one server."""

    state_dir: Path
    port: int  # 0: the port of the last run, else a free one
    driver: str  # auto: that of the last run, else containers if an engine answers
    telemetry: TelemetrySettings
    controllers: bool
    boot_s: float = 0.0  # of simulated machines
    cells: tuple[PlaneName, ...] = ()  # none: those of the last run, else the usual ones
    engine: str = ""  # the socket; empty: where engines usually listen
    latency_s: float = 0.0  # from everybody to hub and cells
    deprecation_grace_s: float = DEPRECATION_GRACE_S
    cells_inside: bool = True  # else they are processes of their own that join
    listen: str = LOOPBACK
    server_names: tuple[str, ...] = ()  # of its certificate, besides this machine
    cell_probing: CellProbing = field(default_factory=CellProbing)
    cell_credential_s: float = CELL_CREDENTIAL_S
    flow_limits: FlowLimits = field(default_factory=FlowLimits)
    port_limits: PortLimits = field(default_factory=PortLimits)


@dataclass(frozen=True, slots=True)
class CellSettings:
    """A cell in a process of its own. Where its hub is it knows from joining."""

    state_dir: Path
    port: int  # 0: the one that it joined with
    driver: str
    telemetry: TelemetrySettings
    listen: str = LOOPBACK
    server_names: tuple[str, ...] = ()
    boot_s: float = 0.0  # of simulated machines
    heartbeat_s: float = 10.0
    capacity: Mapping[str, str] = field(default_factory=dict)  # by resource; what is told the hub
    engine: str = ""
    flow_limits: FlowLimits = field(default_factory=FlowLimits)
    port_limits: PortLimits = field(default_factory=PortLimits)


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Which leases a manager holds; with a plane only the one that is named."""

    enabled: bool
    namespace: str
    name: str
    plane: PlaneName | None


@dataclass(frozen=True, slots=True)
class TlsPortSettings:
    """A port of a manager. Without files it makes its own certificate."""

    address: tuple[str, int]
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None  # by which callers are known; without it all may ask


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """The controllers alone."""

    kubeconfig: Path
    state_dir: Path  # where the simulated driver keeps its machines
    management: bool
    cell: bool
    propagator: bool
    telemetry: TelemetrySettings
    leader: LeaderSettings
    metrics_address: tuple[str, int] | None
    metrics_token: Path | None = field(default=None, kw_only=True)  # the file that holds it
    environment: Mapping[str, str] = field(repr=False)  # for the plugins of a kubeconfig
    boot_s: float = 0.0  # of simulated machines
    driver: str = "simulated"
    health_address: tuple[str, int] | None = None
    mode: str = "auto"
    single: SingleClusterSettings = field(default_factory=SingleClusterSettings)
    federation: FederationSettings | None = None
    discovery: DiscoverySettings = field(default_factory=DiscoverySettings)
    gates: Gates = field(default_factory=dict)
    cell_probing: CellProbing = field(default_factory=CellProbing)
    webhook: TlsPortSettings | None = None  # what API servers ask about writes
    gateway: TlsPortSettings | None = None  # what people ask about their instances
    heartbeat_s: float = 10.0  # of its cells, where the hub is no Karmada
    capacity: Mapping[str, str] = field(default_factory=dict)  # of its cells; what is told the hub
    deprecation_grace_s: float = DEPRECATION_GRACE_S


def local_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> LocalSettings:
    parser = local_parser()
    parsed = merged(parser, arguments, environment)
    return LocalSettings(
        state_dir=_required(parser, parsed, "state_dir").absolute(),
        port=parsed.port,
        driver=parsed.driver,
        telemetry=_telemetry(parsed),
        controllers=parsed.controllers,
        boot_s=parsed.simulated_boot_seconds,
        cells=parsed.cells,
        engine=parsed.engine,
        latency_s=parsed.latency_seconds,
        deprecation_grace_s=parsed.instance_type_deprecation_grace_period,
        cells_inside=parsed.cells_inside,
        listen=parsed.listen,
        server_names=parsed.server_names,
        cell_probing=CellProbing(parsed.cell_probe_seconds, parsed.cell_grace_seconds),
        cell_credential_s=parsed.cell_credential_lifetime,
        flow_limits=flow_limits_of(parsed),
        port_limits=port_limits(parsed),
    )


def cell_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> CellSettings:
    parser = cell_parser()
    parsed = merged(parser, arguments, environment)
    return CellSettings(
        state_dir=_required(parser, parsed, "state_dir").absolute(),
        port=parsed.port,
        driver=parsed.driver,
        telemetry=_telemetry(parsed),
        listen=parsed.listen,
        server_names=parsed.server_names,
        boot_s=parsed.simulated_boot_seconds,
        heartbeat_s=parsed.heartbeat_seconds,
        capacity=parsed.capacity,
        engine=parsed.engine,
        flow_limits=flow_limits_of(parsed),
        port_limits=port_limits(parsed),
    )


def manager_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> ManagerSettings:
    parser = manager_parser()
    parsed = merged(parser, arguments, environment)
    if parsed.kubeconfig is None:
        parser.error("no kubeconfig: pass --kubeconfig FILE or set KUBECONFIG")
    settings = ManagerSettings(
        kubeconfig=parsed.kubeconfig,
        state_dir=_required(parser, parsed, "state_dir").absolute(),
        management=parsed.enable_management_controllers,
        cell=parsed.enable_cell_controllers,
        propagator=parsed.enable_propagator,
        telemetry=_telemetry(parsed),
        leader=LeaderSettings(
            enabled=parsed.leader_elect,
            namespace=parsed.leader_election_namespace,
            name=parsed.leader_election_name,
            plane=parsed.leader_election_plane,
        ),
        metrics_address=_metrics_address(parser, parsed),
        metrics_token=parsed.metrics_token_file,
        environment=environment,
        boot_s=parsed.simulated_boot_seconds,
        driver=parsed.driver,
        health_address=parsed.health_probe_bind_address,
        mode=parsed.mode,
        single=SingleClusterSettings(parsed.project, parsed.cluster_name or "", parsed.context),
        federation=_federation(parser, parsed),
        discovery=DiscoverySettings(parsed.discovery_mode, parsed.project_kubeconfig),
        gates=parsed.feature_gates,
        cell_probing=CellProbing(parsed.cell_probe_seconds, parsed.cell_grace_seconds),
        webhook=_webhook(parser, parsed),
        gateway=_gateway(parser, parsed),
        heartbeat_s=parsed.heartbeat_seconds,
        capacity=parsed.capacity,
        deprecation_grace_s=parsed.instance_type_deprecation_grace_period,
    )
    _check_groups(parser, settings)
    return settings


def _check_groups(parser: argparse.ArgumentParser, settings: ManagerSettings) -> None:
    if not (settings.management or settings.cell or settings.propagator):
        parser.error(
            "nothing to run: pass --enable-management-controllers, --enable-cell-controllers "
            "or --enable-propagator"
        )
    if settings.webhook is not None and not (settings.management or settings.cell):
        parser.error(
            "--webhook-address needs the projects: pass --enable-management-controllers too"
        )
    if settings.gateway is not None and not (settings.management or settings.cell):
        parser.error(
            "--gateway-address is for projects or cells: pass --enable-management-controllers or "
            "--enable-cell-controllers too"
        )
    if settings.mode == "single":
        if settings.propagator or not (settings.management and settings.cell):
            parser.error(
                "--mode single runs both groups and no propagator: pass "
                "--enable-management-controllers and --enable-cell-controllers"
            )
        if settings.federation is not None:
            parser.error("--mode single has no hub: leave --federation-kubeconfig out")


def _metrics_address(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace
) -> tuple[str, int] | None:
    address: tuple[str, int] | None = parsed.metrics_address
    if address is not None and parsed.metrics_token_file is None and not is_loopback(address):
        parser.error(
            f"--metrics-address: {address[0]} can be reached from outside, and nothing there asks "
            "who calls; use 127.0.0.1, or --metrics-token-file"
        )
    return address


def _federation(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace
) -> FederationSettings | None:
    if parsed.federation_kubeconfig is None:
        if parsed.federation_context:
            parser.error("--federation-context names a context of --federation-kubeconfig FILE")
        return None
    return FederationSettings(parsed.federation_kubeconfig, parsed.federation_context)


def _webhook(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> TlsPortSettings | None:
    files = (parsed.webhook_certificate, parsed.webhook_key, parsed.webhook_client_authority)
    return _tls_port(parser, "webhook", parsed.webhook_address, files)


def _gateway(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> TlsPortSettings | None:
    files = (parsed.gateway_certificate, parsed.gateway_key)
    return _tls_port(parser, "gateway", parsed.gateway_address, files)


def _tls_port(
    parser: argparse.ArgumentParser,
    name: str,
    address: tuple[str, int] | None,
    files: tuple[Path | None, ...],
) -> TlsPortSettings | None:
    if address is None:
        if any(file is not None for file in files):
            parser.error(f"the files of the {name} are for --{name}-address HOST:PORT")
        return None
    if (files[0] is None) != (files[1] is None):
        parser.error(f"--{name}-certificate and --{name}-key go together")
    return TlsPortSettings(address, *files)


# --- the flags


def local_parser() -> argparse.ArgumentParser:
    parser = _parser("compute-server", "Serve every plane.")
    add_serving(parser)
    add_flow_limits(parser)
    parser.add_argument(
        "--cells",
        type=cells_value,
        default=(),
        metavar="NAME,...",
        help="a cell for each city; the ones last used, or dfw,iad,lhr,syd",
    )
    parser.add_argument(
        "--latency-seconds",
        type=seconds_value,
        default=0.0,
        metavar="SECONDS",
        help="how far hub and cells are from everybody, to see what distance does",
    )
    add_switch(
        parser,
        "controllers",
        default=True,
        text="without them only the planes are served; a compute-manager does the rest",
    )
    add_switch(
        parser,
        "cells-inside",
        default=True,
        text="without it this process has no cells; they are processes of their own that join",
    )
    add_patience(parser)
    add_credential_lifetime(parser)
    add_connection_limits(parser)
    add_boot_time(parser)
    add_grace(parser)
    add_telemetry(parser)
    return parser


def cell_parser() -> argparse.ArgumentParser:
    parser = _parser("compute-cell", "Serve the plane of one cell that has joined a hub.")
    add_serving(parser)
    add_flow_limits(parser)
    add_heartbeat(parser)
    add_connection_limits(parser)
    add_boot_time(parser)
    add_telemetry(parser)
    return parser


def manager_parser() -> argparse.ArgumentParser:
    parser = _parser("compute-manager", "Run compute controllers against the planes.")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        help="contexts hub, project/<name> and cell/<name> are the planes (required)",
    )
    parser.add_argument(
        "--state-dir", type=Path, help="where the simulated driver keeps its machines (required)"
    )
    add_switch(parser, "enable-management-controllers", text="those beside the projects")
    add_switch(parser, "enable-cell-controllers", text="those of the cells")
    add_switch(parser, "enable-propagator", text="stand in for Karmada on the hub")
    parser.add_argument(
        "--driver",
        choices=("simulated", "pods"),
        default="simulated",
        help="what runs the instances of cells; pods: their own cluster does, which has nodes",
    )
    add_heartbeat(parser)
    add_mode(parser)
    add_discovery(parser)
    add_gates(parser)
    _add_leader(parser)
    parser.add_argument(
        "--metrics-address",
        type=address_value,
        metavar="HOST:PORT",
        help="serve /metrics and /healthz there; other than on this machine only with a token",
    )
    parser.add_argument(
        "--metrics-token-file",
        type=Path,
        metavar="FILE",
        help="whoever reads /metrics must send the content of this file as a bearer token",
    )
    parser.add_argument(
        "--health-probe-bind-address",
        type=address_value,
        metavar="HOST:PORT",
        help="serve /healthz and /readyz there; they say nothing else, so any address will do",
    )
    add_patience(parser)
    add_webhook(parser)
    add_gateway(parser)
    add_grace(parser)
    add_boot_time(parser)
    add_telemetry(parser)
    return parser


def _parser(program: str, text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=text,
        allow_abbrev=False,
        # All of them would bury what is wrong.
        usage=f"{program} [--help] [--config FILE] [--SETTING VALUE ...]",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="the other settings, as YAML")
    return parser


def _add_leader(parser: argparse.ArgumentParser) -> None:
    add_switch(
        parser,
        "leader-elect",
        default=True,
        text="work only while holding a Lease for each group of controllers on its plane",
    )
    parser.add_argument(
        "--leader-election-namespace", default="kube-system", help="namespace of the leases"
    )
    parser.add_argument(
        "--leader-election-name", default="compute-manager", help="how their names begin"
    )
    parser.add_argument(
        "--leader-election-plane",
        type=plane_value,
        metavar="PLANE",
        help="hold one lease, of exactly that name, on this plane instead",
    )


def _required(parser: argparse.ArgumentParser, parsed: argparse.Namespace, dest: str) -> Path:
    value: Path | None = getattr(parsed, dest)
    if value is None:
        parser.error(f"the following arguments are required: --{dest.replace('_', '-')}")
    return value


def _telemetry(parsed: argparse.Namespace) -> TelemetrySettings:
    return TelemetrySettings(parsed.log_level, parsed.log_format, parsed.otlp_endpoint)
