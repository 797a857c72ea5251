"""A federation from the overlays ``management-plane`` and ``cell``, on real API servers.

Projects are paths of one address (milo.py). The managers run with the arguments and the environment
of their Deployments, with files and ports of this machine in place of those of a pod, and under the
shipped accounts: on cells those of the overlay, elsewhere those of deploy/federation. The
propagator, which replaces Karmada, is a separate manager.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from datum_compute.api.planes import cell_plane, path_prefix, project_plane
from datum_compute.api.quota import SERVICE, SERVICE_NAME
from datum_compute.api.services import consumer_name
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.state_directory import ensure_private_directory
from datum_compute.planes.roles import rules_by_role
from testkit.processes.api_servers import (
    RealPlane,
    RealServers,
    answers,
    free_ports,
    running_servers,
    shared_token,
    write_kubeconfig,
)
from testkit.processes.local_platform import BIN, COMMAND_S, eventually
from testkit.processes.programs import Process, start_process, stop
from tests.deploy.overlays import DEPLOY, build_manifests, manager_container
from tests.kubernetes.background import in_background
from tests.kubernetes.kubelet import kubelet_of
from tests.kubernetes.milo import Milo, milo
from tests.kubernetes.topology import install_definitions

NAMESPACE = "datum-compute-system"
PROJECT, CELL = "project/default", "cell/dfw"
MANAGEMENT, ONE_CELL, PROPAGATOR = "management-plane", "cell", "propagator"
PEOPLE = {"edith": "project-editor", "vera": "project-viewer"}
# The accounts that Milo would accept on every path.
QUOTA_ACCOUNT = "kube-system/compute-quota"
ACCOUNTS = (
    "kube-system/compute-manager",
    "kube-system/compute-cell",
    QUOTA_ACCOUNT,
    *(f"default/{name}" for name in PEOPLE),
)
_INSIDE, _STATE = "/etc/datum-compute", "/var/lib/datum-compute"
# Kinds without a definition on a plain API server.
_OF_OTHERS = ("cert-manager.io/v1",)


@dataclass
class OverlayFederation:
    servers: RealServers
    folder: Path
    milo: Milo
    managers: dict[str, Process] = field(default_factory=dict)
    gateways: dict[str, int] = field(default_factory=dict)
    # Discovery and webhook are set by a file of kind WorkloadOperator, and quota claims have an
    # account of their own.
    has_server_configs: bool = False
    webhook_port: int = 0

    @property
    def planes(self) -> Mapping[str, RealPlane]:
        return self.servers.planes

    # --- actions of an operator

    def prepare(self) -> None:
        for plane in self.planes.values():
            self._equip(plane)
        self._be_milo()
        for name in PEOPLE:
            _let_in(self.planes[PROJECT], name, PEOPLE[name])
        *gateways, self.webhook_port = free_ports(3)
        self.gateways = dict(zip((MANAGEMENT, ONE_CELL), gateways, strict=True))
        if self.has_server_configs:
            _let_in_quota(self.planes[PROJECT])
        for overlay in (MANAGEMENT, ONE_CELL):
            for port in ("webhook", "gateway"):
                files = ensure_certificate(self._mounted(overlay, port), datetime.now(UTC))
                files.certificate.rename(files.certificate.with_name("tls.crt"))
                files.key.rename(files.key.with_name("tls.key"))
        self._join()
        self._notice()
        self._write_accounts()

    def _equip(self, plane: RealPlane) -> None:
        role = plane.name.partition("/")[0]
        if role == "cell":
            apply_overlay(plane, ONE_CELL)
        else:
            of_karmada = DEPLOY / "federation" / "karmada-definitions.yaml"
            install_definitions(plane, *([of_karmada] if role == "hub" else []))
        if role == "platform":
            apply_overlay(plane, MANAGEMENT)  # it can run in any cluster
        for part in ("accounts", "catalogue"):
            file = DEPLOY / "federation" / role / f"{part}.yaml"
            if file.exists() and (role, part) != ("cell", "accounts"):
                plane.admin("apply", "-f", str(file))

    def _be_milo(self) -> None:
        """Create a ready project with an active consumer, as Milo does."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        admin = self.planes["platform"].admin
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": now}
        project = {
            "apiVersion": "resourcemanager.miloapis.com/v1alpha1",
            "kind": "Project",
            "metadata": {"name": "default"},
            "spec": {"ownerRef": {"kind": "Organization", "name": "acme"}},
        }
        consumer = {
            "apiVersion": "services.miloapis.com/v1alpha1",
            "kind": "ServiceConsumer",
            "metadata": {"name": consumer_name(SERVICE_NAME, "default")},
            "spec": {"serviceRef": {"name": SERVICE}, "consumerProjectRef": {"name": "default"}},
        }
        for made, status in (
            (project, {"conditions": [{**ready, "message": ""}]}),
            (consumer, {"phase": "Active", "serviceName": SERVICE_NAME}),
        ):
            admin("create", "-f", "-", stdin=json.dumps(made))
            what = f"{made['kind'].lower()}s/{made['metadata']['name']}"  # type: ignore[attr-defined,index]
            patch = json.dumps({"status": status})
            admin("patch", what, "--type=merge", "--subresource=status", f"--patch={patch}")

    def _join(self) -> None:
        """Join the cell and its gateway as in docs/guides/production.md."""
        cell, gateway = self.planes[CELL], self.gateways[ONE_CELL]
        url = f"https://127.0.0.1:{gateway}{path_prefix(cell_plane('dfw'))}"
        where = {"namespace": "karmada-cluster", "name": "dfw"}
        values = {
            "token": cell.token("compute-hub", NAMESPACE).encode(),
            "caBundle": cell.authority.read_bytes(),
            "gatewayCaBundle": self._authority(ONE_CELL).read_bytes(),
        }
        data = {key: base64.b64encode(value).decode() for key, value in values.items()}
        metadata = {
            "name": "dfw",
            "labels": {"topology.datum.net/city-code": "DFW"},
            "annotations": {"compute.datumapis.com/gateway": url},
        }
        spec = {"syncMode": "Push", "apiEndpoint": cell.server, "secretRef": where}
        made: list[dict[str, Any]] = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "karmada-es-dfw"}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": where, "data": data},
            {
                "apiVersion": "cluster.karmada.io/v1alpha1",
                "kind": "Cluster",
                "metadata": metadata,
                "spec": spec,
            },
        ]
        listed = {"apiVersion": "v1", "kind": "List", "items": made}
        self.planes["hub"].admin("apply", "-f", "-", stdin=json.dumps(listed))

    def _notice(self) -> None:
        notice, *rules = yaml.safe_load_all((DEPLOY / "gateway" / "notice.yaml").read_text())
        prefix = path_prefix(project_plane("default"))
        notice["data"] = {
            "url": f"https://127.0.0.1:{self.gateways[MANAGEMENT]}{prefix}",
            "ca.crt": self._authority(MANAGEMENT).read_text(),
        }
        self.planes[PROJECT].admin("apply", "-f", "-", stdin=yaml.safe_dump_all([notice, *rules]))

    # --- files of the pods

    def _mounted(self, overlay: str, what: str) -> Path:
        ensure_private_directory(self.folder / overlay)
        return ensure_private_directory(self.folder / overlay / what)

    def _authority(self, overlay: str) -> Path:
        return self._mounted(overlay, "gateway") / "ca.crt"

    def _write_accounts(self) -> None:
        paths = ("platform", self.milo.server("platform"), self.milo.authority)
        hub, cell = self.planes["hub"], self.planes[CELL]
        of_hub = ("hub", hub.server, hub.authority)
        in_cluster = ("in-cluster", cell.server, cell.authority)
        of_platform, of_project, of_quota = map(shared_token, ACCOUNTS[:3])
        of_manager, of_cell = (hub.token(f"compute-{who}") for who in ("manager", "cell"))
        for overlay, what, place, token in (
            (MANAGEMENT, "planes", paths, of_platform),
            (MANAGEMENT, "federation", of_hub, of_manager),
            (PROPAGATOR, "federation", of_hub, of_manager),
            (ONE_CELL, "federation", of_hub, of_cell),
            (ONE_CELL, "projects", paths, of_project),
            (MANAGEMENT, "quota", paths, of_quota),
            (ONE_CELL, "quota", paths, of_quota),
            (ONE_CELL, "in-cluster", in_cluster, cell.token("compute-cell", NAMESPACE)),
        ):
            file = self._mounted(overlay, what) / "token"
            file.write_text(token)
            users = {place[0]: {"tokenFile": str(file)}}
            write_kubeconfig(file.with_name("kubeconfig"), [place], users)

    # --- processes

    def up(self) -> None:
        for overlay in (MANAGEMENT, ONE_CELL):
            arguments, environment = self._as_in_the_pod(overlay)
            self._start(overlay, arguments, environment)
        hub = self.folder / PROPAGATOR / "federation" / "kubeconfig"
        state = f"--state-dir={self.folder / PROPAGATOR}"
        self._start(PROPAGATOR, ["--enable-propagator", f"--kubeconfig={hub}", state], {})

    def _start(self, part: str, arguments: list[str], environment: dict[str, str]) -> None:
        (port,) = free_ports(1)
        health = {"DATUM_HEALTH_PROBE_BIND_ADDRESS": f"127.0.0.1:{port}"}
        log, command = self.folder / f"{part}.log", [str(BIN / "compute-manager"), *arguments]
        manager = start_process(command, log, {**os.environ, **environment, **health})
        self.managers[part] = manager

        def is_ready() -> bool:
            assert manager.poll() is None, log.read_text()[-2000:]
            return answers(f"http://127.0.0.1:{port}/readyz")

        eventually(is_ready, f"the manager of {part} is ready", within_s=60)

    def _as_in_the_pod(self, overlay: str) -> tuple[list[str], dict[str, str]]:
        container = manager_container(overlay)

        def here(value: str) -> str:
            value = value.replace(_INSIDE, str(self.folder / overlay))
            value = value.replace(_STATE, str(self.folder / overlay / "state"))
            return re.sub(r"^0\.0\.0\.0:\d+$", "127.0.0.1:0", value)

        environment = {entry["name"]: here(entry["value"]) for entry in container["env"]}
        environment["DATUM_GATEWAY_ADDRESS"] = f"127.0.0.1:{self.gateways[overlay]}"
        arguments = [here(argument) for argument in container["args"]]
        if self.has_server_configs:
            return self._with_server_config(overlay, arguments, environment)
        return arguments, environment

    def _with_server_config(
        self, overlay: str, arguments: list[str], environment: dict[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Move what a WorkloadOperator file can set from flags and environment to such a file."""
        folder = self.folder / overlay
        discovery = {"mode": "milo", "quotaKubeconfigPath": str(folder / "quota" / "kubeconfig")}
        if overlay == ONE_CELL:
            discovery["clusterName"] = "dfw"
        config: dict[str, Any] = {
            "apiVersion": "apiserver.config.datumapis.com/v1alpha1",
            "kind": "WorkloadOperator",
            "metricsServer": {"bindAddress": "0"},
            "discovery": discovery,
        }
        if overlay == MANAGEMENT:
            tls = {"certDir": str(folder / "webhook")}
            server = {"host": "127.0.0.1", "port": self.webhook_port, "tls": tls}
            config["webhookServer"] = server
        file = folder / "server.yaml"
        file.write_text(yaml.safe_dump(config))
        moved = ("--cluster-name", "--project-kubeconfig")
        kept = [a for a in arguments if a.partition("=")[0] not in moved]
        rest = {k: v for k, v in environment.items() if not k.startswith("DATUM_WEBHOOK_")}
        return [*kept, f"--server-config={file}"], rest

    def down(self) -> dict[str, int]:
        return {part: stop(manager) for part, manager in self.managers.items()}

    # --- commands of users

    def datumctl(self, who: str, *arguments: str, stdin: str = "") -> Any:
        """Run ``datumctl compute ...`` as this user, in the project."""
        file = self.folder / f"{who}.kubeconfig"
        place = (PROJECT, self.milo.server(PROJECT), self.milo.authority)
        token = shared_token(f"default/{who}")
        write_kubeconfig(file, [place], {PROJECT: {"token": token}})
        environment = {
            **os.environ,
            "KUBECONFIG": str(file),
            "DATUM_STATE_DIR": str(self.folder / "no-local-platform"),
            "NO_COLOR": "1",
        }
        return subprocess.run(
            [str(BIN / "datumctl"), "compute", *arguments],
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    def refusals(self) -> dict[str, list[str]]:
        found = {name: plane.refusals() for name, plane in self.planes.items()}
        return {name: refused for name, refused in found.items() if refused}


def apply_overlay(plane: RealPlane, overlay: str, *flags: str) -> None:
    """Apply definitions first, then namespaces, then the rest."""
    known = [m for m in build_manifests(overlay) if m["apiVersion"] not in _OF_OTHERS]
    definitions = [m for m in known if m["kind"] == "CustomResourceDefinition"]
    if definitions:
        _apply(plane, definitions)
        plane.admin("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    _apply(plane, [m for m in known if m["kind"] == "Namespace"])
    _apply(plane, [m for m in known if m not in definitions], *flags)


def _apply(plane: RealPlane, manifests: list[dict[str, Any]], *flags: str) -> None:
    text = yaml.safe_dump_all(manifests)
    plane.admin("apply", "--server-side", "--force-conflicts", *flags, "-f", "-", stdin=text)


def _let_in(plane: RealPlane, name: str, role: str) -> None:
    rules = list(rules_by_role(project_plane("default"))[role])
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    made = {**head, "metadata": {"name": role}, "rules": rules}
    plane.admin("apply", "-f", "-", stdin=json.dumps(made))
    plane.admin("create", "serviceaccount", name)
    bound = ("create", "clusterrolebinding", name, f"--clusterrole={role}")
    plane.admin(*bound, f"--serviceaccount=default:{name}")


def _let_in_quota(project: RealPlane) -> None:
    """Give the account for quota claims all rights on quota objects, and no others."""
    name = QUOTA_ACCOUNT.partition("/")[2]
    project.admin("create", "serviceaccount", name, "-n", "kube-system")
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    rule = {"apiGroups": ["quota.miloapis.com"], "resources": ["*"], "verbs": ["*"]}
    role = {**head, "metadata": {"name": name}, "rules": [rule]}
    project.admin("apply", "-f", "-", stdin=json.dumps(role))
    bound = ("create", "clusterrolebinding", name, f"--clusterrole={name}")
    project.admin(*bound, f"--serviceaccount=kube-system:{name}")


@contextmanager
def overlay_federation(
    folder: Path, *, has_server_configs: bool = False
) -> Iterator[OverlayFederation]:
    with running_servers(folder) as servers, ExitStack() as stack:
        together = servers.start_planes("platform", PROJECT, accounts=ACCOUNTS)
        servers.start_planes("hub", CELL)
        named = {plane.name: plane for plane in together}
        address = stack.enter_context(in_background(milo(named, folder / "milo")))
        cell = servers.planes[CELL]
        stack.enter_context(in_background(kubelet_of(cell.kubeconfig, folder / "node")))
        found = OverlayFederation(servers, folder, address, has_server_configs=has_server_configs)
        try:
            found.prepare()
            found.up()
            yield found
        finally:
            codes = found.down()
        assert found.refusals() == {}, "the shipped roles suffice"
        assert set(codes.values()) == {0}, "every manager stops in an orderly way"
