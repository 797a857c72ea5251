"""The overlays on a real API server.

It accepts every manifest, and the manager works under the shipped account, with pods as instances.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest

from datum_compute.api.gateway import instance_path
from datum_compute.api.planes import path_prefix, project_plane
from testkit.processes.api_servers import ADMIN_TOKEN, RealPlane, free_ports
from testkit.processes.local_platform import BIN
from testkit.processes.programs import start_process, stop
from tests.deploy.overlays import OVERLAYS, build_manifests, manager_container
from tests.e2e.processes import Api
from tests.kubernetes.kubelet import kubelet_of
from tests.kubernetes.overlay_federation import NAMESPACE, apply_overlay

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]

WORKLOAD = {
    "apiVersion": "compute.datumapis.com/v1alpha",
    "kind": "Workload",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "template": {
            "spec": {
                "runtime": {
                    "resources": {"instanceType": "datumcloud/d1-standard-2"},
                    "sandbox": {"containers": [{"name": "app", "image": "x.example/web:1"}]},
                },
                "networkInterfaces": [{"network": {"name": "default"}}],
            }
        },
        "placements": [{"name": "main", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 2}}],
    },
}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_manifest(plane: RealPlane, overlay: str) -> None:
    apply_overlay(plane, overlay, "--dry-run=server")


def test_a_pod_of_the_deployment_satisfies_the_restricted_standard(plane: RealPlane) -> None:
    apply_overlay(plane, "single-cluster")
    (template,) = [
        m["spec"]["template"] for m in build_manifests("single-cluster") if _is_deployment(m)
    ]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": NAMESPACE},
        "spec": template["spec"],
    }
    plane.admin("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


def _is_deployment(manifest: dict[str, Any]) -> bool:
    return bool(manifest["kind"] == "Deployment")


async def test_the_manager_works_under_the_shipped_account_and_instances_are_pods(
    plane: RealPlane, tmp_path: Path
) -> None:
    apply_overlay(plane, "single-cluster")
    plane.admin("create", "serviceaccount", "anybody")
    (port,) = free_ports(1)
    command = [*_command(plane, tmp_path), f"--gateway-address=127.0.0.1:{port}"]
    manager = start_process(command, tmp_path / "manager.log")
    try:
        async with kubelet_of(plane.kubeconfig, tmp_path / "node"):
            await _kubectl(plane, "apply", "-f", "-", stdin=json.dumps(WORKLOAD))
            wait = ("wait", "--for=condition=Available", "workload/web", "--timeout=90s")
            await _kubectl(plane, *wait)
            await _until(plane, lambda pods: [_phase(p) for p in pods] == ["Running"] * 2)
            assert len(await asyncio.to_thread(_lines, plane, tmp_path, port)) == 2
            await _kubectl(plane, "delete", "workload", "web", "--timeout=90s")
            await _until(plane, lambda pods: pods == [])
        assert manager.poll() is None, (tmp_path / "manager.log").read_text()[-2000:]
    finally:
        stop(manager)
    assert plane.refusals() == []


def _command(plane: RealPlane, folder: Path) -> list[str]:
    """Return the command with the arguments of the pod and paths of this machine."""
    token = plane.admin("create", "token", "compute-manager", "-n", NAMESPACE).strip()
    config = json.loads(plane.admin("config", "view", "--raw", "--minify", "-o", "json"))
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["name"] = config["current-context"] = "in-cluster"
    (folder / "kubeconfig").write_text(json.dumps(config))
    return [
        str(BIN / "compute-manager"),
        *manager_container("single-cluster")["args"],
        f"--kubeconfig={folder / 'kubeconfig'}",
        f"--state-dir={folder / 'state'}",
        f"--leader-election-namespace={NAMESPACE}",
    ]


def _lines(plane: RealPlane, folder: Path, port: int) -> list[Any]:
    """Return the log lines of an instance from the gateway, which has a self-made certificate."""
    (name, *_) = plane.admin("get", "instances", "-o", "jsonpath={.items[*].metadata.name}").split()
    prefix = path_prefix(project_plane("default"))
    trust = ssl.create_default_context(cafile=str(folder / "state" / "gateway" / "ca.crt"))
    gateway = Api(f"https://127.0.0.1:{port}{prefix}", ADMIN_TOKEN, trust)
    lines: list[Any] = gateway.request("GET", instance_path("default", name, "log"))["lines"]
    return lines


async def _kubectl(plane: RealPlane, *arguments: str, stdin: str = "") -> str:
    return await asyncio.to_thread(plane.admin, *arguments, stdin=stdin)


async def _until(plane: RealPlane, holds: Any) -> None:
    async with asyncio.timeout(90):
        while True:
            listed = json.loads(await _kubectl(plane, "get", "pods", "-o", "json"))
            if holds(listed["items"]):
                return
            await asyncio.sleep(0.2)


def _phase(pod: dict[str, Any]) -> str:
    return str(pod["status"]["phase"])
