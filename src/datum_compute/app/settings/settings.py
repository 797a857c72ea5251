"""Settings of the processes, as dataclasses. A flag takes precedence over the environment, then the
file, then the default (``resolve.py``). Nothing else reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from datum_compute.api.planes import PlaneName
from datum_compute.app.settings.feature_gates import FeatureGates
from datum_compute.app.settings.options import (
    COMPUTE_CELL,
    COMPUTE_MANAGER,
    COMPUTE_SERVER,
    FEDERATED,
    MILO,
    ONLY_CELL,
    SINGLE,
)
from datum_compute.app.settings.resolve import Values, resolve
from datum_compute.app.settings.values import is_loopback
from datum_compute.controllers.context import CellProbing
from datum_compute.server.flowcontrol.control import FlowLimits
from datum_compute.server.http.send_budget import MIB, PortLimits

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Logs and trace spans. Without an endpoint the process makes no spans."""

    log_level: str
    log_format: str
    otlp_endpoint: str


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The API port of a process, and its limits."""

    port: int  # 0: the port of the last run, else a free one
    address: str
    server_names: tuple[str, ...]  # in the certificate, in addition to this machine
    port_limits: PortLimits
    flow_limits: FlowLimits


@dataclass(frozen=True, slots=True)
class DriverSettings:
    """What runs the instances of a process."""

    name: str  # auto: the driver of the last run, else containers if an engine responds
    engine: str = ""  # the socket; empty: the usual sockets
    boot_s: float = 0.0  # of simulated machines
    ingress: str = "auto"  # inside or process; auto: as in the last run, else inside


# --- compute-server


@dataclass(frozen=True, slots=True)
class LocalCellsSettings:
    """Cells of ``compute-server``, and how it treats cells that have joined."""

    names: tuple[PlaneName, ...]  # empty: the cells of the last run, else the default ones
    inside: bool  # False: cells are processes of their own that join
    probing: CellProbing
    credential_s: float  # lifetime of the certificates that the hub issues


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """``compute-server``."""

    state_dir: Path
    telemetry: TelemetrySettings
    listener: ListenerSettings
    driver: DriverSettings
    cells: LocalCellsSettings
    controllers: bool
    enforces_quota: bool
    deprecation_grace_s: float


def local_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> LocalSettings:
    values = resolve(COMPUTE_SERVER, arguments, environment)
    return LocalSettings(
        state_dir=values.require("state-dir").absolute(),
        telemetry=_telemetry(values),
        listener=_listener(values),
        driver=_driver(values),
        cells=LocalCellsSettings(
            names=values["cells"] or (),
            inside=values["cells-inside"],
            probing=_probing(values),
            credential_s=values["cell-credential-lifetime"],
        ),
        controllers=values["controllers"],
        enforces_quota=values["enforce-quota"],
        deprecation_grace_s=values["instance-type-deprecation-grace-period"],
    )


# --- compute-cell


@dataclass(frozen=True, slots=True)
class HeartbeatSettings:
    """What a cell reports to the hub, and how often."""

    every_s: float = 10.0
    capacity: Mapping[str, str] = field(default_factory=dict)  # by resource


@dataclass(frozen=True, slots=True)
class CellSettings:
    """``compute-cell``. The address of its hub is in the state directory."""

    state_dir: Path
    telemetry: TelemetrySettings
    listener: ListenerSettings
    driver: DriverSettings
    heartbeat: HeartbeatSettings
    enforces_quota: bool


def cell_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> CellSettings:
    values = resolve(COMPUTE_CELL, arguments, environment)
    return CellSettings(
        state_dir=values.require("state-dir").absolute(),
        telemetry=_telemetry(values),
        listener=_listener(values),
        driver=_driver(values),
        heartbeat=_heartbeat(values),
        enforces_quota=values["enforce-quota"],
    )


# --- compute-manager


@dataclass(frozen=True, slots=True)
class SingleClusterSettings:
    """Names of the one API server where no context of the kubeconfig is named as a plane."""

    project: str = "default"
    cluster: str = ""  # name of the cell
    context: str = ""  # of the kubeconfig; empty: the current context

    @property
    def only_cell(self) -> str:
        """The name of the cell in single-cluster mode."""
        return self.cluster or ONLY_CELL


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """Kubeconfig of the hub, if it is not the kubeconfig of the other planes."""

    kubeconfig: Path
    context: str


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """How projects are found, and kubeconfigs that are not that of the other planes."""

    mode: str = MILO
    kubeconfig: Path | None = None  # of the projects
    platform_kubeconfig: Path | None = None
    quota_kubeconfig: Path | None = None  # of the quota claims in the projects


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """Which planes a manager works on, and how it reaches them."""

    kubeconfig: Path
    mode: str
    single: SingleClusterSettings
    federation: FederationSettings | None
    discovery: DiscoverySettings
    environment: Mapping[str, str] = field(repr=False)  # of the plugins of a kubeconfig

    @property
    def is_single_cluster(self) -> bool:
        return self.mode == SINGLE


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Which controllers a manager runs."""

    management: bool
    cell: bool
    propagator: bool
    gates: FeatureGates = field(default_factory=dict)
    cell_probing: CellProbing = field(default_factory=CellProbing)
    enforces_quota: bool = True


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """Which Leases a manager holds; with a plane, only the Lease that is named."""

    enabled: bool
    namespace: str
    name: str
    plane: PlaneName | None


@dataclass(frozen=True, slots=True)
class TlsPortSettings:
    """A TLS port of a manager. Without files the port gets a self-signed certificate."""

    address: Address
    certificate: Path | None = None
    key: Path | None = None
    client_authority: Path | None = None  # None: all clients are accepted


@dataclass(frozen=True, slots=True)
class ManagerPortSettings:
    """Ports of a manager; None: the port is not opened."""

    metrics: Address | None
    metrics_tls: TlsPortSettings | None  # None: plain HTTP
    metrics_token: Path | None  # the file that contains it
    health: Address | None
    webhook: TlsPortSettings | None  # AdmissionReviews of API servers
    gateway: TlsPortSettings | None  # requests of users about their instances


@dataclass(frozen=True, slots=True)
class ManagerSettings:
    """``compute-manager``."""

    state_dir: Path
    telemetry: TelemetrySettings
    planes: PlaneSettings
    controllers: ControllerSettings
    driver: DriverSettings
    heartbeat: HeartbeatSettings  # of its cells, unless the hub is Karmada
    leader: LeaderSettings
    ports: ManagerPortSettings
    deprecation_grace_s: float


def manager_settings(
    arguments: Sequence[str], environment: Mapping[str, str] = os.environ
) -> ManagerSettings:
    values = resolve(COMPUTE_MANAGER, arguments, environment)
    if values["kubeconfig"] is None:
        values.fail("no kubeconfig: pass --kubeconfig FILE or set KUBECONFIG")
    settings = ManagerSettings(
        state_dir=values.require("state-dir").absolute(),
        telemetry=_telemetry(values),
        planes=_planes(values, environment),
        controllers=_controllers(values),
        driver=DriverSettings(values["driver"], boot_s=values["simulated-boot-seconds"]),
        heartbeat=_heartbeat(values),
        leader=LeaderSettings(
            enabled=values["leader-elect"],
            namespace=values["leader-election-namespace"],
            name=values["leader-election-name"],
            plane=values["leader-election-plane"],
        ),
        ports=ManagerPortSettings(
            metrics=_metrics_address(values),
            metrics_tls=_metrics_tls(values),
            metrics_token=values["metrics-token-file"],
            health=values["health-probe-bind-address"],
            webhook=_tls_port(values, "webhook", values["webhook-client-authority"]),
            gateway=_tls_port(values, "gateway"),
        ),
        deprecation_grace_s=values["instance-type-deprecation-grace-period"],
    )
    _check_ports(values, settings)
    _check_mode(values, settings)
    return settings


def _planes(values: Values, environment: Mapping[str, str]) -> PlaneSettings:
    return PlaneSettings(
        kubeconfig=values["kubeconfig"],
        mode=values["mode"],
        single=SingleClusterSettings(
            values["project"], values["cluster-name"] or "", values["context"]
        ),
        federation=_federation(values),
        discovery=_discovery(values),
        environment=environment,
    )


def _discovery(values: Values) -> DiscoverySettings:
    """Return how projects are found.

    The controllers of a cell use projects only for quota claims, so the quota kubeconfig replaces
    that of the projects there.
    """
    projects, quota = values["project-kubeconfig"], values["quota-kubeconfig"]
    if quota is not None and not values["enable-management-controllers"]:
        projects, quota = quota, None
    return DiscoverySettings(
        values["discovery-mode"], projects, values["discovery-kubeconfig"], quota
    )


def _controllers(values: Values) -> ControllerSettings:
    settings = ControllerSettings(
        management=values["enable-management-controllers"],
        cell=values["enable-cell-controllers"],
        propagator=values["enable-propagator"],
        gates=values["feature-gates"],
        cell_probing=_probing(values),
        enforces_quota=values["enforce-quota"],
    )
    if not (settings.management or settings.cell or settings.propagator):
        values.fail(
            "nothing to run: pass --enable-management-controllers, --enable-cell-controllers "
            "or --enable-propagator"
        )
    return settings


def _check_ports(values: Values, settings: ManagerSettings) -> None:
    has_instances = settings.controllers.management or settings.controllers.cell
    if settings.ports.webhook is not None and not has_instances:
        values.fail(
            "--webhook-address needs the projects: pass --enable-management-controllers too"
        )
    if settings.ports.gateway is not None and not has_instances:
        values.fail(
            "--gateway-address is for projects or cells: pass --enable-management-controllers or "
            "--enable-cell-controllers too"
        )


def _check_mode(values: Values, settings: ManagerSettings) -> None:
    if settings.planes.mode == FEDERATED:
        return
    groups = settings.controllers
    if groups.propagator or not (groups.management and groups.cell):
        values.fail(
            "--mode single runs both groups and no propagator: pass "
            "--enable-management-controllers and --enable-cell-controllers"
        )
    if settings.planes.federation is not None:
        values.fail("--mode single has no hub: remove --federation-kubeconfig")


def _metrics_address(values: Values) -> Address | None:
    address: Address | None = values["metrics-address"]
    if address is not None and values["metrics-token-file"] is None and not is_loopback(address):
        values.fail(
            f"--metrics-address: other machines can reach {address[0]}, and the port does not "
            "authenticate them; use 127.0.0.1, or add --metrics-token-file"
        )
    return address


def _metrics_tls(values: Values) -> TlsPortSettings | None:
    if values["metrics-tls"]:
        return _tls_port(values, "metrics")
    if values["metrics-certificate"] is not None or values["metrics-key"] is not None:
        values.fail("--metrics-certificate and --metrics-key need --metrics-tls")
    return None


def _federation(values: Values) -> FederationSettings | None:
    if values["federation-kubeconfig"] is None:
        if values["federation-context"]:
            values.fail("--federation-context needs --federation-kubeconfig FILE")
        return None
    return FederationSettings(values["federation-kubeconfig"], values["federation-context"])


def _tls_port(
    values: Values, name: str, client_authority: Path | None = None
) -> TlsPortSettings | None:
    address: Address | None = values[f"{name}-address"]
    certificate, key = values[f"{name}-certificate"], values[f"{name}-key"]
    if address is None:
        if any(file is not None for file in (certificate, key, client_authority)):
            values.fail(f"the certificate files of the {name} need --{name}-address HOST:PORT")
        return None
    if (certificate is None) != (key is None):
        values.fail(f"--{name}-certificate and --{name}-key go together")
    return TlsPortSettings(address, certificate, key, client_authority)


# --- Settings that several processes have


def _telemetry(values: Values) -> TelemetrySettings:
    return TelemetrySettings(values["log-level"], values["log-format"], values["otlp-endpoint"])


def _listener(values: Values) -> ListenerSettings:
    return ListenerSettings(
        port=values["port"],
        address=values["listen"],
        server_names=values["server-names"],
        port_limits=PortLimits(
            connections_max=values["connections-max"],
            reserved_connections=values["connections-reserved"],
            connections_per_user_max=values["connections-per-user-max"],
            anonymous_connections_max=values["anonymous-connections-max"],
            anonymous_connections_per_address_max=values["anonymous-connections-per-address-max"],
            unsent_bytes_max=values["unsent-mebibytes-max"] * MIB,
            unsent_bytes_per_user_max=values["unsent-mebibytes-per-user-max"] * MIB,
        ),
        flow_limits=FlowLimits(
            flow_requests_max=values["waiting-requests-per-user-max"],
            level_requests_max=values["waiting-requests-max"],
            wait_max_s=values["request-wait-seconds-max"],
        ),
    )


def _driver(values: Values) -> DriverSettings:
    return DriverSettings(
        values["driver"], values["engine"], values["simulated-boot-seconds"], values["ingress"]
    )


def _heartbeat(values: Values) -> HeartbeatSettings:
    return HeartbeatSettings(values["heartbeat-seconds"], values["capacity"])


def _probing(values: Values) -> CellProbing:
    return CellProbing(values["cell-probe-seconds"], values["cell-grace-seconds"])
