"""A topology where every plane is a real kube-apiserver, with our managers and shipped accounts.

The center is one manager for projects and hub, with our propagator or a real Karmada. Each cell has
its own manager. Cells may be on our own server, as members of Karmada. Projects are found by
``--discovery-mode list``. A manager that exits (it loses its lease when the hub is killed) is
restarted, as a supervisor does.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import ssl
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.state_directory import ensure_private_directory
from testkit.processes.api_servers import (
    ADMIN_TOKEN,
    RealPlane,
    RealServers,
    answers,
    free_ports,
    write_kubeconfig,
)
from testkit.processes.karmada import Karmada
from testkit.processes.local_platform import BIN, COMMAND_S, eventually
from testkit.processes.programs import Process, kill, start_process, stop
from tests.e2e.processes import CENTER, CLUSTERS, SHORT_TIMEOUTS, Api, condition
from tests.karmada.ours import OurPlane

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PROJECT = "project/default"
CAPACITY = "instances=100"
HEARTBEAT_S = 1
_CENTRAL = ("platform", PROJECT, "hub")

Plane = RealPlane | OurPlane


@dataclass
class KubernetesTopology:
    servers: RealServers
    folder: Path
    cells: tuple[str, ...]
    managers: dict[str, Process] = field(default_factory=dict)
    paused: set[str] = field(default_factory=set)
    ports: dict[str, int] = field(default_factory=dict)  # health ports of managers
    gateways: dict[str, int] = field(default_factory=dict)  # gateway ports of managers
    with_karmada: Callable[[RealPlane], Karmada] | None = None
    has_our_cells: bool = False
    karmadas: list[Karmada] = field(default_factory=list)
    ours: dict[str, OurPlane] = field(default_factory=dict)

    @property
    def propagator(self) -> str:
        return "karmada" if self.with_karmada else "ours"

    @property
    def timeout_s(self) -> float:
        """Karmada waits 32 s for a response, and another 32 s until it watches a cell again."""
        return 100 if self.with_karmada else 30

    @property
    def planes(self) -> Mapping[str, Plane]:
        return {**self.servers.planes, **self.ours}

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    # --- setup

    def prepare(self) -> None:
        parts = (CENTER, *self.cells)
        ports = free_ports(2 * len(parts))
        self.ports = dict(zip(parts, ports, strict=False))
        self.gateways = dict(zip(parts, ports[len(parts) :], strict=True))
        for part in parts:
            folder = ensure_private_directory(
                ensure_private_directory(self.folder / part) / "gateway"
            )
            ensure_certificate(folder, datetime.now(UTC))
        real = () if self.has_our_cells else tuple(f"cell/{cell}" for cell in self.cells)
        self._start_ours()
        self.servers.start_planes(*_CENTRAL, *real)
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._equip, self.planes.values()))
        named = sorted(self.planes.items(), key=lambda item: item[0] != PROJECT)
        write_kubeconfig(self.kubeconfig, (_context(name, plane) for name, plane in named))
        for cell in self.cells:
            self._join(cell)
            self._write_accounts(cell, {f"cell/{cell}": "compute-cell", PROJECT: "compute-cell"})
        self._write_accounts(CENTER, dict.fromkeys(_CENTRAL[:2], "compute-manager"))
        self._publish_gateway()
        (self.folder / f"{CENTER}.yaml").write_text("discovery: {mode: list}\n")

    def _start_ours(self) -> None:
        for cell in self.cells if self.has_our_cells else ():
            plane = OurPlane(cell, self.folder / f"cell-{cell}")
            self.ours[plane.name] = plane
            plane.start()

    def _equip(self, plane: Plane) -> None:
        """Apply the files of deploy/ for the role of the plane."""
        role = plane.name.partition("/")[0]
        federation = DEPLOY / "federation"
        if isinstance(plane, OurPlane):
            plane.await_ready()  # it serves every kind from its start
        elif role == "hub" and self.with_karmada is not None:
            self.karmadas.append(self.with_karmada(plane))
            self.karmadas[0].install()
        else:
            of_karmada = federation / "karmada-definitions.yaml"
            install_definitions(plane, *([of_karmada] if role == "hub" else []))
        plane.admin("apply", "-f", str(federation / role))

    def _join(self, cell: str) -> None:
        """Create a Secret with a token for the cell, and a Cluster, as for Karmada."""
        plane, hub = self.planes[f"cell/{cell}"], self.planes["hub"].admin
        values = {
            "token": plane.token("compute-hub").encode(),
            "caBundle": plane.authority.read_bytes(),
            "gatewayCaBundle": self._authority(cell).read_bytes(),
        }
        where = {"namespace": "karmada-cluster", "name": cell}
        cluster_labels = {"topology.datum.net/city-code": cell.upper()}
        annotations = {"compute.datumapis.com/gateway": self._gateway(cell, f"cell/{cell}")}
        spec = {"syncMode": "Push", "apiEndpoint": plane.server, "secretRef": where}
        made = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"karmada-es-{cell}"}},
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": where,
                "data": {key: base64.b64encode(value).decode() for key, value in values.items()},
            },
            {
                "apiVersion": "cluster.karmada.io/v1alpha1",
                "kind": "Cluster",
                "metadata": {"name": cell, "labels": cluster_labels, "annotations": annotations},
                "spec": spec,
            },
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": made}
        hub("apply", "-f", "-", stdin=json.dumps(listed))
        for karmada in self.karmadas:
            karmada.await_member(cell)

    def _publish_gateway(self) -> None:
        notice, *rules = yaml.safe_load_all((DEPLOY / "gateway" / "notice.yaml").read_text())
        authority = self._authority(CENTER).read_text()
        notice["data"] = {"url": self._gateway(CENTER, PROJECT), "ca.crt": authority}
        self.planes[PROJECT].admin("apply", "-f", "-", stdin=yaml.safe_dump_all([notice, *rules]))

    def _gateway(self, part: str, plane: str) -> str:
        return f"https://127.0.0.1:{self.gateways[part]}{path_prefix(PlaneName(plane))}"

    def _authority(self, part: str) -> Path:
        return self.folder / part / "gateway" / "ca.crt"

    def _write_accounts(self, part: str, planes: dict[str, str]) -> None:
        """Write two kubeconfigs with token files for a part: for its planes and for the hub."""
        account = next(iter(planes.values()))
        for suffix, accounts in (("", planes), ("-hub", {"hub": account})):
            users = {}
            for name, of_plane in accounts.items():
                file = self.folder / f"{part}-{name.replace('/', '-')}.token"
                file.write_text(self.planes[name].token(of_plane))
                users[name] = {"tokenFile": str(file)}
            contexts = [_context(name, self.planes[name]) for name in accounts]
            write_kubeconfig(self.folder / f"{part}{suffix}.kubeconfig", contexts, users)

    # --- processes

    def start(self, part: str) -> None:
        _restart(self._planes_of(part))
        for karmada in self.karmadas if part == CENTER else ():
            karmada.up()
        self.managers[part] = self._manager(part)

    def up(self) -> None:
        _restart(self.planes.values())
        for karmada in self.karmadas:
            karmada.up()
        self._keep_up()
        for part, port in self.ports.items():
            ready = f"http://127.0.0.1:{port}/readyz"
            eventually(partial(answers, ready), f"the manager of {part} is ready", 60)
        hub = self.api("hub")
        for cell in self.cells:
            eventually(
                partial(_is_ready, hub, cell),
                f"{cell} answers the hub",
                within_s=60,
            )

    def _keep_up(self) -> None:
        for part in (CENTER, *self.cells):
            process = self.managers.get(part)
            if process is None or process.poll() is not None:
                self.managers[part] = self._manager(part)

    def manager(self, part: str, *flags: str) -> Process:
        """Start an additional manager for a test, with any free health port."""
        port = "--health-probe-bind-address=127.0.0.1:0"
        return start_process([*self._command(part), port, *flags], self.folder / f"{part}.log")

    def _manager(self, part: str) -> Process:
        command = [*self._command(part), "--no-leader-elect"]
        command.append(f"--health-probe-bind-address=127.0.0.1:{self.ports[part]}")
        command.append(f"--gateway-address=127.0.0.1:{self.gateways[part]}")
        return start_process(command, self.folder / f"{part}.log")

    def _command(self, part: str) -> list[str]:
        if part != CENTER:
            groups: tuple[str, ...] = ("--enable-cell-controllers", "--discovery-mode=list")
            groups += (f"--heartbeat-seconds={HEARTBEAT_S}", f"--capacity={CAPACITY}")
        elif self.karmadas:
            groups = ("--enable-management-controllers",)
        else:
            groups = ("--enable-management-controllers", "--enable-propagator")
        command = [
            str(BIN / "compute-manager"),
            *groups,
            f"--kubeconfig={self.folder / part}.kubeconfig",
            f"--federation-kubeconfig={self.folder / part}-hub.kubeconfig",
            f"--state-dir={self.folder / part}",
        ]
        if part == CENTER:
            command.append(f"--config={self.folder / CENTER}.yaml")
            command.append(f"--cell-probe-seconds={SHORT_TIMEOUTS['DATUM_CELL_PROBE_SECONDS']}")
            command.append(f"--cell-grace-seconds={SHORT_TIMEOUTS['DATUM_CELL_GRACE_SECONDS']}")
        return command

    def _planes_of(self, part: str) -> list[Plane]:
        """Return the planes that are killed with a part: the hub, or the plane of the cell."""
        return [self.planes["hub" if part == CENTER else f"cell/{part}"]]

    def kill(self, part: str) -> None:
        kill(self.managers.pop(part))
        for plane in self._planes_of(part):
            plane.running.kill()
        for karmada in self.karmadas if part == CENTER else ():
            karmada.kill_all()

    def pause(self, part: str) -> None:
        self._send(part, signal.SIGSTOP)
        self.paused.add(part)

    def resume(self, part: str) -> None:
        self._send(part, signal.SIGCONT)
        self.paused.discard(part)

    def _send(self, part: str, number: int) -> None:
        self.managers[part].send_signal(number)
        for plane in self._planes_of(part):
            plane.running.send(number)
        for karmada in self.karmadas if part == CENTER else ():
            karmada.send(number)

    def restore(self) -> None:
        for part in list(self.paused):
            self.resume(part)
        self.up()

    def down(self) -> list[int]:
        """Stop the managers first, and return their exit codes."""
        for part in list(self.paused):
            self.resume(part)
        codes = [stop(manager) for manager in self.managers.values()]
        for karmada in self.karmadas:
            karmada.down()
        for plane in self.ours.values():
            plane.running.stop()
        return codes

    # --- access for tests

    def api(self, context: str, *, manager: bool = False) -> Api:
        del manager  # the administrator can read everything
        plane = self.planes[context]
        trust = ssl.create_default_context(cafile=str(plane.authority))
        return Api(plane.server, ADMIN_TOKEN, trust)

    def gateway(self) -> Api:
        trust = ssl.create_default_context(cafile=str(self._authority(CENTER)))
        return Api(self._gateway(CENTER, PROJECT), ADMIN_TOKEN, trust)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "DATUM_STATE_DIR": str(self.folder / "no-local-platform"),
            "NO_COLOR": "1",
        }
        return subprocess.run(
            [str(BIN / "datumctl"), "compute", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    def refusals(self) -> dict[str, list[str]]:
        """Return the refused requests of accounts by plane; empty if the shipped roles suffice."""
        found = {name: plane.refusals() for name, plane in self.planes.items()}
        return {name: refused for name, refused in found.items() if refused}


def _restart(planes: Iterable[Plane]) -> None:
    down = [plane for plane in planes if not plane.running]
    for plane in down:
        plane.start()
    for plane in down:
        plane.await_ready()


def _context(name: str, plane: Plane) -> tuple[str, str, Path]:
    return name, plane.server, plane.authority


def install_definitions(plane: RealPlane, *files: Path) -> None:
    kubectl = plane.admin
    flags: Iterable[Any] = [f"--filename={file}" for file in (DEPLOY / "crds", *files)]
    kubectl("apply", "--server-side", *flags)
    kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def _is_ready(hub: Api, cell: str) -> bool:
    return condition(hub.find(f"{CLUSTERS}/{cell}"), "Ready")[0] == "True"
