"""A project is created, gets access to compute, runs a workload, and is deleted."""

from __future__ import annotations

import json

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("needs_kubectl")]

PROJECT = {
    "apiVersion": "resourcemanager.miloapis.com/v1alpha1",
    "kind": "Project",
    "metadata": {"name": "shop"},
    "spec": {"ownerRef": {"kind": "Organization", "name": "default"}},
}
REQUEST = {
    "apiVersion": "services.miloapis.com/v1alpha1",
    "kind": "ServiceEntitlement",
    "metadata": {"name": "compute"},
    "spec": {"serviceRef": {"name": "compute"}},
}
WORKLOAD = {
    "apiVersion": "compute.datumapis.com/v1alpha",
    "kind": "Workload",
    "metadata": {"name": "web"},
    "spec": {
        "template": {
            "spec": {"runtime": {"sandbox": {"containers": [{"name": "app", "image": "web:1"}]}}}
        },
        "placements": [{"name": "a", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}],
    },
}


def servers(platform: LocalPlatform) -> int:
    return len(platform.objects("cell/dfw", "servers.region.datumapis.com"))


def test_a_project_gets_access_survives_a_kill_and_is_deleted(platform: LocalPlatform) -> None:
    root = Kubectl(platform.kubeconfig, "platform")
    root("apply", "-f", "-", stdin=json.dumps(PROJECT))
    root("wait", "--for=condition=Ready", "project/shop", "--timeout=20s")
    eventually(lambda: "project/shop" in platform.kubeconfig.read_text(), "it has a context")
    shop = Kubectl(platform.kubeconfig, "project/shop")
    assert "default" in shop("get", "networks", "-o", "name")
    assert "was not requested" in shop.error_of("create", "-f", "-", stdin=json.dumps(WORKLOAD))

    shop("create", "-f", "-", stdin=json.dumps(REQUEST))
    shop("wait", "--for=condition=Ready", "serviceentitlement/compute", "--timeout=20s")
    shop("create", "-f", "-", stdin=json.dumps(WORKLOAD))
    shop("wait", "--for=condition=Available", "workload/web", "--timeout=30s")
    listed = platform.run("workloads", "--project", "shop")
    assert "web" in listed.stdout, listed.stderr
    assert servers(platform) == 1

    platform.kill()
    platform.up()
    assert "web" in shop("get", "workloads")
    assert "shop" in root("get", "projects")
    other = Kubectl(platform.kubeconfig, "project/default").with_flags(
        f"--server={server_of(platform, 'project/shop')}"
    )
    assert "forbidden" in other.error_of("get", "workloads").lower()

    root("delete", "project", "shop", "--timeout=60s")
    assert servers(platform) == 0
    eventually(
        lambda: "project/shop" not in platform.kubeconfig.read_text(), "its context is removed"
    )
    assert "default" in root("get", "projects")


def test_a_pending_request_for_access_is_reported_as_information(platform: LocalPlatform) -> None:
    root = Kubectl(platform.kubeconfig, "platform")
    gated = json.dumps({"spec": {"enablementPolicy": {"mode": "GatedByProvider"}}})
    root("patch", "services.services.miloapis.com", "compute", "--type=merge", "-p", gated)
    root("apply", "-f", "-", stdin=json.dumps(PROJECT))
    root("wait", "--for=condition=Ready", "project/shop", "--timeout=20s")
    eventually(lambda: "project/shop" in platform.kubeconfig.read_text(), "it has a context")
    missing = "No access to Compute in project/shop: not enabled; no request was made yet."
    for command in ("workloads", "instances", "quota"):
        listed = platform.run(command, "--project", "shop")
        assert (listed.returncode, missing in listed.stderr) == (0, True), listed.stderr
    shop = Kubectl(platform.kubeconfig, "project/shop")
    shop("create", "-f", "-", stdin=json.dumps(REQUEST))
    deploy = ("deploy", "web", "--image=x.example/web:1", "--city=DFW", "-y", "--project", "shop")
    pending = platform.run(*deploy)
    assert pending.returncode == 12, pending.stderr
    assert "Compute was requested for project/shop" in pending.stderr
    assert "error:" not in pending.stderr
    status = platform.run("status", "web", "--project", "shop")
    assert status.returncode == 3
    assert "requested, waiting for approval" in status.stderr


def server_of(platform: LocalPlatform, context: str) -> str:
    config = Kubectl(platform.kubeconfig, context).json("config", "view", "--minify", "--raw")
    return str(config["clusters"][0]["cluster"]["server"])


def identities(platform: LocalPlatform) -> list[tuple[str, str, str]]:
    """Return name, uid and address of each instance on the cell."""
    return sorted(
        (
            instance["metadata"]["name"],
            instance["metadata"]["uid"],
            instance["status"]["networkInterfaces"][0]["addresses"][0]["address"],
        )
        for instance in platform.objects("cell/dfw", "instances")
    )


def test_a_suspended_project_keeps_its_instances_and_resumes_them(platform: LocalPlatform) -> None:
    root = Kubectl(platform.kubeconfig, "platform")
    project = Kubectl(platform.kubeconfig, "project/default")
    project("create", "-f", "-", stdin=json.dumps(WORKLOAD))
    project("wait", "--for=condition=Available", "workload/web", "--timeout=30s")
    before, uid = identities(platform), project.json("get", "workload", "web")["metadata"]["uid"]
    (consumer,) = root.json("get", "serviceconsumers")["items"]

    def suspend(*, suspended: bool) -> None:
        name, patch = consumer["metadata"]["name"], {"spec": {"suspended": suspended}}
        root("patch", "serviceconsumer", name, "--type=merge", "-p", json.dumps(patch))

    def reasons() -> set[str]:
        conditions = project.json("get", "workload", "web")["status"]["conditions"]
        return {c["reason"] for c in conditions if c["type"] in ("Available", "Progressing")}

    suspend(suspended=True)
    eventually(lambda: reasons() == {"ProjectSuspended"}, "the workload is suspended")
    (server,) = platform.objects("cell/dfw", "servers.region.datumapis.com")
    assert (server["status"]["phase"], server["spec"]["suspended"]) == ("Stopped", True)
    shown = platform.run("status", "web").stdout
    assert "Health:    Suspended: The project is suspended" in shown
    assert identities(platform) == before

    suspend(suspended=False)
    project("wait", "--for=condition=Available", "workload/web", "--timeout=30s")
    assert identities(platform) == before
    assert project.json("get", "workload", "web")["metadata"]["uid"] == uid

    stopped = platform.run("stop", "web")
    assert stopped.returncode == 0, stopped.stderr
    assert "web is stopped: 1 instance kept" in stopped.stdout + stopped.stderr
    started = platform.run("start", "web")
    assert started.returncode == 0, started.stderr
    assert identities(platform) == before
