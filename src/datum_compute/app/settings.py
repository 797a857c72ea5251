"""Settings of the processes: flag > environment > file > default, merged here and nowhere else.

Every flag ``--some-name`` can also be given as ``DATUM_SOME_NAME`` in the environment and as
``some-name: value`` in a YAML file (``--config FILE``). All three are read by the same parser, so
that each is checked alike; a mistake says where it was made.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datum_compute.api.plane import PlaneName, plane_role, project_plane
from datum_compute.app.layers import merged
from datum_compute.telemetry.logs import FORMATS, LEVELS


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
    driver: str
    telemetry: TelemetrySettings
    controllers: bool
    boot_s: float = 0.0  # of simulated machines


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Which leases a manager holds; with a plane only the one that is named."""

    enabled: bool
    namespace: str
    name: str
    plane: PlaneName | None


@dataclass(frozen=True, slots=True)
class SingleClusterSettings:
    """How one API server is seen when there is no federation."""

    project: str  # whose quota counts
    cluster: str  # the name of the only cell
    context: str  # of the kubeconfig; the current one if it is left out


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """Where the hub is, if not in the kubeconfig of the other planes."""

    kubeconfig: Path
    context: str


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
    environment: Mapping[str, str] = field(repr=False)  # for the plugins of a kubeconfig
    boot_s: float = 0.0  # of simulated machines
    health_address: tuple[str, int] | None = None
    mode: str = "auto"
    single: SingleClusterSettings = SingleClusterSettings("default", "single", "")
    federation: FederationSettings | None = None


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
        metrics_address=parsed.metrics_address,
        environment=environment,
        boot_s=parsed.simulated_boot_seconds,
        health_address=parsed.health_probe_bind_address,
        mode=parsed.mode,
        single=SingleClusterSettings(parsed.project, parsed.cluster_name, parsed.context),
        federation=_federation(parser, parsed),
    )
    _check_groups(parser, settings)
    return settings


def _check_groups(parser: argparse.ArgumentParser, settings: ManagerSettings) -> None:
    if not (settings.management or settings.cell or settings.propagator):
        parser.error(
            "nothing to run: pass --enable-management-controllers, --enable-cell-controllers "
            "or --enable-propagator"
        )
    if settings.mode == "single":
        if settings.propagator or not (settings.management and settings.cell):
            parser.error(
                "--mode single runs both groups and no propagator: pass "
                "--enable-management-controllers and --enable-cell-controllers"
            )
        if settings.federation is not None:
            parser.error("--mode single has no hub: leave --federation-kubeconfig out")


def _federation(
    parser: argparse.ArgumentParser, parsed: argparse.Namespace
) -> FederationSettings | None:
    if parsed.federation_kubeconfig is None:
        if parsed.federation_context:
            parser.error("--federation-context names a context of --federation-kubeconfig FILE")
        return None
    return FederationSettings(parsed.federation_kubeconfig, parsed.federation_context)


# --- the flags


def local_parser() -> argparse.ArgumentParser:
    parser = _parser("python -m datum_compute.app.local_server", "Serve every plane.")
    parser.add_argument("--state-dir", type=Path, help="where everything is kept (required)")
    parser.add_argument(
        "--port", type=_port, default=0, help="0 is the one last used, or any free one"
    )
    parser.add_argument(
        "--driver", choices=("simulated",), default="simulated", help="what runs the instances"
    )
    _add_switch(
        parser,
        "controllers",
        default=True,
        text="without them only the planes are served; a compute-manager does the rest",
    )
    _add_boot_time(parser)
    _add_telemetry(parser)
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
    _add_switch(parser, "enable-management-controllers", text="those beside the projects")
    _add_switch(parser, "enable-cell-controllers", text="those of the cells")
    _add_switch(parser, "enable-propagator", text="stand in for Karmada on the hub")
    _add_mode(parser)
    _add_leader(parser)
    parser.add_argument(
        "--metrics-address",
        type=_loopback_address,
        metavar="HOST:PORT",
        help="serve /metrics and /healthz there, without a password: on this machine only",
    )
    parser.add_argument(
        "--health-probe-bind-address",
        type=_address,
        metavar="HOST:PORT",
        help="serve /healthz and /readyz there; they say nothing else, so any address will do",
    )
    _add_boot_time(parser)
    _add_telemetry(parser)
    return parser


def _parser(program: str, text: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=text, allow_abbrev=False)
    parser.add_argument("--config", type=Path, metavar="FILE", help="the other settings, as YAML")
    return parser


def _add_leader(parser: argparse.ArgumentParser) -> None:
    _add_switch(
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
        type=_plane,
        metavar="PLANE",
        help="hold one lease, of exactly that name, on this plane instead",
    )


def _add_mode(parser: argparse.ArgumentParser) -> None:
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
        help="in single mode: the context to use instead of the current one",
    )
    parser.add_argument(
        "--project",
        type=_dns_label,
        default="default",
        metavar="NAME",
        help="in single mode: the project whose quota counts",
    )
    parser.add_argument(
        "--cluster-name",
        type=_dns_label,
        default="single",
        metavar="NAME",
        help="in single mode: how quota claims name this cluster",
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


def _add_boot_time(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--simulated-boot-seconds",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long simulated machines take to boot",
    )


def _add_telemetry(parser: argparse.ArgumentParser) -> None:
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


def _add_switch(
    parser: argparse.ArgumentParser, name: str, *, text: str, default: bool = False
) -> None:
    parser.add_argument(
        f"--{name}", action=argparse.BooleanOptionalAction, default=default, help=text
    )


def _required(parser: argparse.ArgumentParser, parsed: argparse.Namespace, dest: str) -> Path:
    value: Path | None = getattr(parsed, dest)
    if value is None:
        parser.error(f"the following arguments are required: --{dest.replace('_', '-')}")
    return value


def _telemetry(parsed: argparse.Namespace) -> TelemetrySettings:
    return TelemetrySettings(parsed.log_level, parsed.log_format, parsed.otlp_endpoint)


# --- kinds of values


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 to 3600")
    return seconds


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError("a port is between 0 and 65535")
    return port


def _plane(text: str) -> PlaneName:
    try:
        plane_role(PlaneName(text))
    except (AssertionError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no plane: {error}") from error
    return PlaneName(text)


def _dns_label(text: str) -> str:
    try:
        project_plane(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def _address(text: str) -> tuple[str, int]:
    """ADDRESS:PORT, or :PORT for every address of the machine."""
    host, _, port = text.rpartition(":")
    try:
        return str(ipaddress.ip_address(host.strip("[]") or "0.0.0.0")), _port(port)  # noqa: S104
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT") from None


def _loopback_address(text: str) -> tuple[str, int]:
    host, port = _address(text)
    if not ipaddress.ip_address(host).is_loopback:
        raise argparse.ArgumentTypeError(
            f"{host} can be reached from outside, and nothing here asks who calls; "
            "use 127.0.0.1 and a proxy that does"
        )
    return host, port
