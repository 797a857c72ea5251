"""The shipped webhook configurations on a real kube-apiserver, with a manager.

The tests replace only the address by a URL, because without nodes there are no Services.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.processes.api_servers import free_ports
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import eventually
from testkit.processes.single_cluster import (
    DEPLOY,
    TIMEOUT_S,
    SingleCluster,
    install_crds,
    workload,
    write_account_kubeconfig,
)

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.kubernetes,
    pytest.mark.usefixtures("needs_kubectl"),
    pytest.mark.timeout(2 * TIMEOUT_S),
]
EDITOR = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "Role",
    "metadata": {"name": "editor"},
    "rules": [
        {
            "apiGroups": ["compute.datumapis.com"],
            "resources": ["workloads", "instances"],
            "verbs": [
                "get",
                "list",
                "create",
                "update",
                "patch",
            ],  # "*" would include the permission of a controller
        }
    ],
}


@pytest.fixture
def cluster(real_plane: Kubectl, tmp_path: Path) -> Iterator[SingleCluster]:
    install_crds(real_plane)
    real_plane("apply", "-f", str(DEPLOY / "single-cluster"))
    real_plane("create", "namespace", "shop")
    (port,) = free_ports(1)
    found = SingleCluster(
        tmp_path / "manager",
        write_account_kubeconfig(real_plane, tmp_path / "one.kubeconfig"),
        real_plane,
        flags=(f"--webhook-address=127.0.0.1:{port}",),
    )
    found.state.mkdir()
    found.start()
    try:
        authority = found.state / "webhook" / "ca.crt"
        eventually(authority.exists, "the webhook has a certificate")
        for name in ("validating", "mutating"):
            manifest = configuration(DEPLOY / "webhook" / f"{name}.yaml", port, authority)
            real_plane("apply", "-f", "-", stdin=manifest)
        eventually(lambda: is_called(found), "the API server calls the webhook")
        yield found
    finally:
        found.stop()


def configuration(file: Path, port: int, authority: Path) -> str:
    found = yaml.safe_load(file.read_text())
    bundle = base64.b64encode(authority.read_bytes()).decode()
    for hook in found["webhooks"]:
        path = hook["clientConfig"]["service"]["path"]
        hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}
    return json.dumps(found)


def is_called(cluster: SingleCluster) -> bool:
    """Return True after the API server has loaded the configuration, about two seconds later."""
    tried = cluster.kubectl.run(
        "create", "--dry-run=server", "-f", "-", stdin=json.dumps(workload_in_unknown_city())
    )
    assert "failed calling webhook" not in tried.stderr, tried.stderr
    return "there are: DFW" in tried.stderr


def workload_in_unknown_city() -> dict[str, Any]:
    found = workload("web:1", 1)
    found["spec"]["placements"][0]["cityCodes"] = ["XXX"]
    return found


def apply(kubectl: Kubectl, obj: dict[str, Any]) -> Kubectl:
    kubectl("apply", "-f", "-", stdin=json.dumps(obj))
    return kubectl


def test_workloads_get_defaults_and_invalid_writes_are_refused(
    cluster: SingleCluster,
) -> None:
    kubectl, sent = cluster.kubectl, workload("web:1", 1)
    sent["spec"]["placements"][0]["cityCodes"] = ["dfw"]
    stored = apply(kubectl, sent).json("get", "workload", "web")
    assert stored["spec"]["placements"][0]["cityCodes"] == ["DFW"], "in upper case"
    cluster.wait_until_running("web:1", 1)

    sent["spec"]["placements"][0]["cityCodes"] = ["XXX"]
    refused = kubectl.error_of("apply", "-f", "-", stdin=json.dumps(sent))
    assert "there are: DFW" in refused

    kubectl("apply", "-f", "-", stdin=json.dumps(EDITOR))
    kubectl("create", "rolebinding", "editor", "--role=editor", "--user=ann")
    ann = kubectl.with_flags("--as=ann")
    refused = ann.error_of(
        "create", "-f", "-", stdin=json.dumps(with_name("ann", workload("a:1", 1)))
    )
    assert "may not use network" in refused
    (instance,) = cluster.items("instances")
    own = instance["metadata"]["name"]
    refused = ann.error_of(
        "label", "instance", own, "compute.datumapis.com/city-code=X", "--overwrite"
    )
    assert "written by controllers" in refused
    ann("label", "instance", own, "team=blue")


def with_name(name: str, obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {"name": name}}


def test_without_the_webhook_only_spec_changes_are_refused(cluster: SingleCluster) -> None:
    """The match conditions of the configuration exclude all other writes."""
    kubectl = cluster.kubectl
    apply(kubectl, workload("web:1", 2))
    cluster.wait_until_running("web:1", 2)
    bare = {"apiVersion": "resourcemanager.miloapis.com/v1alpha1", "kind": "Organization"}
    apply(kubectl, with_name("bare", bare))
    cluster.kill()

    refused = kubectl.error_of("apply", "-f", "-", stdin=json.dumps(workload("web:2", 2)))
    assert "validate.compute.datumapis.com" in refused or "default.compute" in refused
    kubectl("label", "workload/web", "team=blue")
    kubectl("label", "organization/bare", "team=blue")
    (first, *_) = (item["metadata"]["name"] for item in cluster.items("instances"))
    status: dict[str, Any] = {"status": {"conditions": []}}
    token = cluster.kubeconfig  # the account of the manager, whose writes are excluded
    manager = Kubectl(token, "one").in_namespace("shop")
    manager(
        *("patch", "instance", first, "--subresource=status", "--type=merge"),
        f"--patch={json.dumps(status)}",
    )
    manager("label", "instance", first, "compute.datumapis.com/city-code=DFW", "--overwrite")
    kubectl("delete", "workload/web", "--wait=false")
    cluster.start()
    eventually(
        lambda: not cluster.items("instances"), "the instances are deleted", within_s=TIMEOUT_S
    )
