"""A manager with a file of kind WorkloadOperator, and a separate credential for quota claims."""

from __future__ import annotations

import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.state_directory import ensure_private_directory
from testkit.api_server.running_server import workload
from testkit.processes.local_platform import BIN, LocalPlatform, eventually
from tests.e2e.test_webhook import free_port, start

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HEAD = {"apiVersion": "apiserver.config.datumapis.com/v1alpha1", "kind": "WorkloadOperator"}
CLAIMS = "resourceclaims.quota.miloapis.com"


@dataclass(frozen=True)
class ConfiguredManager:
    """A manager whose quota credential is ``token_file``. The file does not contain a token yet."""

    platform: LocalPlatform
    token_file: Path
    webhook_port: int
    webhook_authority: Path

    def count(self, kinds: str) -> int:
        return len(self.platform.objects("project/default", kinds))

    def use_valid_token(self) -> None:
        config = yaml.safe_load(self.platform.manager_kubeconfig.read_text())
        self.token_file.write_text(config["users"][0]["user"]["token"])


@pytest.fixture
def manager(stopped_platform: LocalPlatform) -> Iterator[ConfiguredManager]:
    server = [str(BIN / "python"), "-m", "datum_compute.app.local_server"]
    processes = [start([*server, "--state-dir", str(stopped_platform.state), "--no-controllers"])]
    try:
        eventually(stopped_platform.manager_kubeconfig.exists, "the planes are served", 90)
        found, command = _prepare(stopped_platform)
        processes.append(start(command))
        yield found
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=30)


def _prepare(platform: LocalPlatform) -> tuple[ConfiguredManager, list[str]]:
    folder = ensure_private_directory(platform.state / "configured")
    certificate = ensure_certificate(folder, datetime.now(UTC))
    found = ConfiguredManager(platform, folder / "token", free_port(), certificate.authority)
    found.token_file.write_text("invalid")
    quota = yaml.safe_load(platform.manager_kubeconfig.read_text())
    quota["current-context"] = "platform"
    quota["contexts"] = [c for c in quota["contexts"] if c["name"] == "platform"]
    for user in quota["users"]:
        user["user"] = {"tokenFile": str(found.token_file)}
    quota_file = folder / "quota.kubeconfig"
    quota_file.write_text(yaml.safe_dump(quota))
    tls = {"certDir": str(folder), "certName": certificate.certificate.name}
    tls["keyName"] = certificate.key.name
    config: dict[str, Any] = {
        **HEAD,
        "discovery": {"mode": "milo", "quotaKubeconfigPath": str(quota_file)},
        "webhookServer": {"host": "127.0.0.1", "port": found.webhook_port, "tls": tls},
    }
    (folder / "server.yaml").write_text(yaml.safe_dump(config))
    return found, [
        str(BIN / "compute-manager"),
        f"--kubeconfig={platform.manager_kubeconfig}",
        f"--state-dir={folder / 'manager'}",
        "--enable-management-controllers",
        f"--server-config={folder / 'server.yaml'}",
    ]


def test_quota_claims_need_the_quota_credential(manager: ConfiguredManager) -> None:
    manager.platform.kubectl("project/default", "apply", "-f", "-", stdin=yaml.dump(workload()))
    assert manager.count(CLAIMS) == 0
    manager.use_valid_token()
    eventually(lambda: manager.count(CLAIMS) > 0, "the claim of the workload exists", 60)
    eventually(lambda: manager.count("workloaddeployments") > 0, "the workload is deployed", 60)


def test_the_webhook_is_served_with_the_certificate_of_the_file(
    manager: ConfiguredManager,
) -> None:
    trust = ssl.create_default_context(cafile=str(manager.webhook_authority))
    url = f"https://127.0.0.1:{manager.webhook_port}/healthz"

    def is_served() -> bool:
        try:
            with urllib.request.urlopen(url, context=trust, timeout=10) as answer:
                return bool(answer.read() == b"ok")
        except OSError:
            return False

    eventually(is_served, "the webhook responds", 90)


def test_an_unknown_field_ends_the_manager_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "server.yaml"
    file.write_text(yaml.safe_dump({**HEAD, "discovery": {"clustername": "dfw"}}))
    done = subprocess.run(
        [
            str(BIN / "compute-manager"),
            "--kubeconfig=k",
            f"--state-dir={tmp_path}",
            "--enable-cell-controllers",
            f"--server-config={file}",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "discovery.clustername: unknown field, did you mean discovery.clusterName?" in (
        done.stderr
    )
