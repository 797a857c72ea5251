"""Real API servers on loopback: etcd, and kube-apiserver and its controllers for each plane.

There are no nodes and no kubelet. All servers share one etcd, each under its own prefix.
Certificates are from our own authority; the administrator has a token. Refused requests of accounts
are recorded (``RealPlane.refusals``): controllers run under the shipped roles, and a missing
permission fails the test.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from datum_compute.app.certificates import ensure_certificate
from datum_compute.server.http.listen import ServerCertificate
from hack.kube_assets import found_assets
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from testkit.processes.programs import Process, ProcessGroup, kill, start_process, stop

START_S = 90
ADMIN_TOKEN = "administrator"
ACCOUNTS_IN = "kube-system"
# Sufficient without nodes: deletion of namespaces, garbage collection, service account tokens.
_CONTROLLERS = "namespace,garbagecollector,serviceaccount,serviceaccount-token"
# Requests of accounts and their responses.
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "userGroups": [
                f"system:serviceaccounts:{ACCOUNTS_IN}",
                "system:serviceaccounts:datum-compute-system",  # of the overlays
            ],
        },
        {"level": "None"},
    ],
}
_OF_KUBERNETES = ("generic-garbage-collector", "namespace-controller")

Event = dict[str, Any]


@dataclass
class RealPlane:
    """One API server and its controllers; they can be killed and restarted."""

    name: str
    folder: Path
    port: int
    certificate: ServerCertificate
    apiserver: list[str]
    controllers: list[str]
    running: ProcessGroup = field(default_factory=ProcessGroup)
    started_s: list[float] = field(default_factory=list)
    ready_s: list[float] = field(default_factory=list)

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        return self.certificate.authority

    @property
    def admin(self) -> Kubectl:
        return Kubectl(self.kubeconfig, self.name)

    def is_ready(self) -> bool:
        return self.admin.run("get", "--raw", "/readyz").returncode == 0

    def start(self) -> None:
        self.started_s.append(time.time())
        self.running.start(self.apiserver, self.folder / "apiserver.log")

    def await_ready(self) -> None:
        eventually(self.is_ready, f"the API server {self.name} is ready", within_s=START_S)
        self.ready_s.append(time.time() + 1)
        self.running.start(self.controllers, self.folder / "controllers.log")

    def restart_controllers(self) -> None:
        kill(self.running.processes.pop())
        self.running.start(self.controllers, self.folder / "controllers.log")

    def writes(self, account: str, *resources: str) -> Counter[str]:
        """Count the writes of an account to these resources, by verb and resource."""
        return Counter(
            f"{event['verb']} {event['objectRef']['resource']}"
            for event in self._events()
            if _user(event) == account
            and event["verb"] not in ("get", "list", "watch")
            and event.get("objectRef", {}).get("resource") in resources
        )

    def _events(self) -> Iterable[Event]:
        log = self.folder / "audit.log"
        return map(json.loads, log.read_text().splitlines() if log.exists() else [])

    def token(self, account: str, namespace: str = ACCOUNTS_IN) -> str:
        return self.admin("create", "token", account, "-n", namespace, "--duration=4h").strip()

    def refusals(self) -> list[str]:
        """Return the requests of our accounts that were refused."""
        return sorted({_describe(event) for event in self._events() if self._is_refusal(event)})

    def _is_refusal(self, event: Event) -> bool:
        """Return True if a permission is missing.

        Other causes of a 403 are a terminating namespace, and a server that has just started and
        has not read its roles yet.
        """
        decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
        if decision != "forbid" or _user(event) in _OF_KUBERNETES:
            return False
        at_s = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        starts = zip(self.started_s, self.ready_s, strict=False)
        return not any(begun_s <= at_s <= ready_s for begun_s, ready_s in starts)


@dataclass
class RealServers:
    """A folder for data and logs, etcd, and the planes by name."""

    assets: Path
    folder: Path
    syncs_writes: bool = False  # etcd syncs each write to the disk; tests do not need that
    etcd: Process | None = None
    etcd_command: list[str] = field(default_factory=list)
    etcd_url: str = ""
    planes: dict[str, RealPlane] = field(default_factory=dict)

    def start_etcd(self) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        self.etcd_url = client
        self.etcd_command = [
            str(self.assets / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            *([] if self.syncs_writes else ["--unsafe-no-fsync"]),
        ]
        self._run_etcd()

    def _run_etcd(self) -> None:
        self.etcd = start_process(self.etcd_command, self.folder / "etcd.log")
        healthy = f"{self.etcd_url}/health"
        eventually(lambda: answers(healthy), "etcd is healthy", within_s=START_S)

    def start_plane(self, name: str) -> RealPlane:
        (plane,) = self.start_planes(name)
        return plane

    def restart_etcd(self) -> None:
        """Kill etcd, and restart it with its data."""
        assert self.etcd is not None
        kill(self.etcd)
        self._run_etcd()

    def start_planes(self, *names: str, accounts: Iterable[str] = ()) -> list[RealPlane]:
        """Start planes concurrently, because a start mostly waits.

        All of them accept the ``shared_token`` of these service accounts (``namespace/name``).
        """
        planes = [self._prepared(name, accounts) for name in names]
        for plane in planes:
            self.planes[plane.name] = plane
            plane.start()
        for plane in planes:
            plane.await_ready()
        return planes

    def _prepared(self, name: str, accounts: Iterable[str]) -> RealPlane:
        folder = self.folder / name.replace("/", "-")
        folder.mkdir(mode=0o700)
        certificate = ensure_certificate(folder, datetime.now(UTC))
        (port,) = free_ports(1)
        plane = RealPlane(name, folder, port, certificate, [], [])
        write_kubeconfig(plane.kubeconfig, [(name, plane.server, certificate.authority)])
        tokens = [f"{ADMIN_TOKEN},admin,admin,system:masters", *map(_known_token, accounts)]
        (folder / "tokens.csv").write_text("".join(f"{line}\n" for line in tokens))
        plane.apiserver = [str(self.assets / "kube-apiserver"), *self._server_flags(plane)]
        plane.controllers = [
            str(self.assets / "kube-controller-manager"),
            f"--kubeconfig={plane.kubeconfig}",
            f"--controllers={_CONTROLLERS}",
            f"--service-account-private-key-file={folder / 'accounts.key'}",
            f"--root-ca-file={certificate.authority}",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        return plane

    def _server_flags(self, plane: RealPlane) -> Iterable[str]:
        folder, certificate = plane.folder, plane.certificate
        signing = _signing_key(folder / "accounts.key")
        (folder / "audit.json").write_text(json.dumps(_AUDIT))
        return (
            f"--etcd-servers={self.etcd_url}",
            f"--etcd-prefix=/{folder.name}",
            "--bind-address=127.0.0.1",
            f"--secure-port={plane.port}",
            f"--tls-cert-file={certificate.certificate}",
            f"--tls-private-key-file={certificate.key}",
            f"--client-ca-file={certificate.authority}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            f"--service-account-key-file={signing}",
            f"--service-account-signing-key-file={signing}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
            f"--audit-policy-file={folder / 'audit.json'}",
            f"--audit-log-path={folder / 'audit.log'}",
        )

    def stop_plane(self, name: str) -> None:
        self.planes.pop(name).running.stop()

    def stop(self) -> None:
        for name in list(self.planes):
            self.stop_plane(name)
        if self.etcd is not None:
            stop(self.etcd)


@contextmanager
def running_servers(folder: Path) -> Iterator[RealServers]:
    """Run an etcd without planes, and stop everything at the end."""
    servers = RealServers(needed_assets(), folder)
    try:
        servers.start_etcd()
        yield servers
    finally:
        servers.stop()


def free_ports(count: int) -> list[int]:
    """Return distinct free ports of this machine."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(listening.getsockname()[1]) for listening in sockets]
    for listening in sockets:
        listening.close()
    return ports


def write_kubeconfig(
    path: Path,
    planes: Iterable[tuple[str, str, Path]],
    users: dict[str, dict[str, str]] | None = None,
) -> Path:
    """Write a context for each (name, server, authority); the default user is the administrator."""
    config: dict[str, object] = {"apiVersion": "v1", "kind": "Config"}
    clusters, contexts, names = [], [], []
    for name, server, authority in planes:
        cluster = {"server": server, "certificate-authority": os.fspath(authority)}
        clusters.append({"name": name, "cluster": cluster})
        user = {"name": name, "user": (users or {}).get(name, {"token": ADMIN_TOKEN})}
        names.append(user)
        contexts.append({"name": name, "context": {"cluster": name, "user": name}})
    config |= {"clusters": clusters, "users": names, "contexts": contexts}
    config["current-context"] = contexts[0]["name"]
    path.write_text(json.dumps(config))
    return path


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _user(event: Event) -> str:
    return str(event["user"]["username"]).rpartition(":")[2]


def _describe(event: Event) -> str:
    resource = event.get("objectRef", {})
    kind = ".".join(filter(None, (resource.get("resource"), resource.get("apiGroup"))))
    part = f"/{resource['subresource']}" if resource.get("subresource") else ""
    return f"{_user(event)} may not {event['verb']} {kind}{part}"


def shared_token(account: str) -> str:
    """Return the token of an account on planes that were started with it."""
    return f"token-of-{account.replace('/', '-')}"


def _known_token(account: str) -> str:
    """Return a line of a token file, for the Kubernetes user of a service account."""
    namespace, _, name = account.partition("/")
    groups = f"system:serviceaccounts,system:serviceaccounts:{namespace}"
    user = f"system:serviceaccount:{namespace}:{name}"
    return f'{shared_token(account)},{user},{name},"{groups}"'


def _signing_key(path: Path) -> Path:
    """Create a signing key for service account tokens."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    path.touch(mode=0o600)
    path.write_bytes(pem)
    return path


def needed_assets() -> Path:
    found = found_assets(os.environ)
    if found is None:
        pytest.fail("there are no real API servers to test with; build them: make kube-assets")
    return found
