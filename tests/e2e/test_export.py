"""``local export`` to another local platform, to Kubernetes planes and to a single cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform, eventually
from testkit.processes.single_cluster import DEPLOY, install_crds
from tests.e2e.processes import NAMESPACE, Api, condition
from tests.e2e.topologies import Topology

pytestmark = pytest.mark.e2e

CORE = "/api/v1/namespaces/default"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[LocalPlatform]:
    platform = LocalPlatform(tmp_path / "source")
    try:
        started = platform.up("--cells", "dfw")
        assert started.returncode == 0, started.stderr
        yield platform
    finally:
        platform.down()


@pytest.fixture
def two_platforms(
    source: LocalPlatform, tmp_path: Path
) -> Iterator[tuple[LocalPlatform, LocalPlatform]]:
    target = LocalPlatform(tmp_path / "target")
    try:
        started = target.up("--cells", "dfw")
        assert started.returncode == 0, started.stderr
        yield source, target
    finally:
        target.down()


PROJECT = {
    "apiVersion": "resourcemanager.miloapis.com/v1alpha1",
    "kind": "Project",
    "metadata": {"name": "shop"},
    "spec": {"ownerRef": {"kind": "Organization", "name": "default"}},
}
OBJECTS = (
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "front"}},
    {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "default"},
        "data": {"MODE": "fast"},
    },
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key", "namespace": "default"},
        "stringData": {"KEY": "do-not-print"},
    },
)


def create_objects(platform: LocalPlatform) -> None:
    for thing in OBJECTS:
        platform.kubectl("project/default", "apply", "-f", "-", stdin=json.dumps(thing))
    flags = ("--image=x.example/web:1", "--city=DFW", "-y", f"--kubeconfig={platform.kubeconfig}")
    done = platform.run("deploy", "web", *flags)
    assert done.returncode == 0, done.stderr
    patch = {
        "op": "add",
        "path": "/spec/template/spec/runtime/sandbox/containers/0/envFrom",
        "value": [{"configMapRef": {"name": "settings"}}, {"secretRef": {"name": "key"}}],
    }
    platform.kubectl(
        "project/default", "patch", "workload", "web", "--type=json", "-p", json.dumps([patch])
    )
    platform.kubectl("platform", "apply", "-f", "-", stdin=json.dumps(PROJECT))
    platform.kubectl("platform", "wait", "--for=condition=Ready", "project/shop", "--timeout=30s")


def export(
    source: LocalPlatform, target: LocalPlatform | Topology, *flags: str, to: str = "platform"
) -> str:
    where = (f"--to-kubeconfig={target.kubeconfig}", f"--state-dir={source.state}")
    done = source.run("local", "export", f"--to={to}", *where, *flags)
    assert done.returncode == 0, done.stderr
    assert "do-not-print" not in done.stdout + done.stderr
    return done.stdout


def names(platform: LocalPlatform, kind: str) -> list[str]:
    found = platform.objects("project/default", kind)
    return sorted(f"{o['metadata'].get('namespace', '')}/{o['metadata']['name']}" for o in found)


def test_an_export_copies_all_objects_and_a_second_one_writes_nothing(
    two_platforms: tuple[LocalPlatform, LocalPlatform],
) -> None:
    source, target = two_platforms
    create_objects(source)
    planned = export(source, target, "--dry-run")
    assert "Workload" in planned
    assert names(target, "workloads") == [], "a dry run writes nothing"
    assert "All objects were copied to platform" in export(source, target, "-y")
    assert names(target, "workloads") == ["default/web"]
    assert "default/settings" in names(target, "configmaps")
    assert "default/key" in names(target, "secrets")
    projects = target.objects("platform", "projects")
    assert sorted(p["metadata"]["name"] for p in projects) == ["default", "shop"]
    eventually(lambda: _running(target), "the workload runs on the target")
    before = _versions(target)
    assert "exists: " in export(source, target), "without changes no confirmation is required"
    assert _versions(target) == before, "nothing is written twice"


def test_an_export_to_one_plane_needs_a_project_and_force_overwrites_conflicts(
    two_platforms: tuple[LocalPlatform, LocalPlatform],
) -> None:
    source, target = two_platforms
    create_objects(source)
    changed = {**OBJECTS[1], "data": {"MODE": "slow"}}
    target.kubectl(
        "project/default", "apply", "--server-side", "-f", "-", stdin=json.dumps(changed)
    )
    flags = (f"--to-kubeconfig={target.kubeconfig}", f"--state-dir={source.state}", "-y")
    many = source.run("local", "export", "--to=project/default", *flags)
    assert many.returncode == 2
    assert "--project" in many.stderr
    chosen = ("--to=project/default", "--project=default", *flags)
    refused = source.run("local", "export", *chosen)
    assert refused.returncode == 20, refused.stderr
    assert names(target, "workloads") == []
    forced = source.run("local", "export", *chosen, "--force")
    assert forced.returncode == 0, forced.stderr
    (settings,) = [c for c in target.objects("project/default", "configmaps") if _is_settings(c)]
    assert settings["data"] == {"MODE": "fast"}


@pytest.mark.kubernetes
@pytest.mark.timeout(300)  # with the start of the API servers
def test_a_project_exported_to_kubernetes_planes_runs_there(
    source: LocalPlatform, kubernetes_topology: Topology
) -> None:
    target = kubernetes_topology
    create_objects(source)
    project = target.api("project/default")
    flags = ("--project=default", "-y")
    try:
        moved = export(source, target, *flags, to="project/default")
        assert "All objects were copied to project/default" in moved
        eventually(lambda: _is_available(project), "it is available on the target")
        before = _written(project)
        assert "exists: " in export(source, target, *flags, to="project/default")
        assert _written(project) == before, "nothing is written twice"
    finally:
        for path in (
            f"{NAMESPACE}/workloads/web",
            f"{CORE}/configmaps/settings",
            f"{CORE}/secrets/key",
        ):
            project.status_code("DELETE", path)
        project.status_code("DELETE", "/api/v1/namespaces/front")
        eventually(lambda: not project.names(f"{NAMESPACE}/workloads"), "its workloads are deleted")


def _is_available(project: Api) -> bool:
    return condition(project.find(f"{NAMESPACE}/workloads/web"), "Available")[0] == "True"


def _written(project: Api) -> list[str]:
    paths = (f"{NAMESPACE}/workloads/web", f"{CORE}/configmaps/settings", f"{CORE}/secrets/key")
    return [_state((project.find(path) or {})["metadata"]) for path in paths]


def _is_settings(found: dict[str, dict[str, str]]) -> bool:
    return found["metadata"]["name"] == "settings"


def _running(platform: LocalPlatform) -> bool:
    found = platform.objects("cell/dfw", "servers")
    return [s["status"].get("phase") for s in found] == ["Running"]


def _versions(platform: LocalPlatform) -> dict[str, str]:
    found = platform.objects("project/default", "workloads,configmaps,secrets,networks,namespaces")
    return {f"{o['kind']}/{o['metadata']['name']}": _state(o["metadata"]) for o in found}


def _state(metadata: dict[str, str]) -> str:
    """Return the generation if there is one, because the status changes all the time."""
    return str(metadata.get("generation") or metadata["resourceVersion"])


@pytest.mark.kubernetes
@pytest.mark.usefixtures("needs_kubectl")
def test_a_project_is_exported_to_a_single_cluster_that_serves_projects(
    real_plane: Kubectl, source: LocalPlatform
) -> None:
    install_crds(real_plane)
    real_plane("apply", "-f", str(DEPLOY / "single-cluster"))
    create_objects(source)
    target = (f"--to-kubeconfig={real_plane.kubeconfig}", f"--to={real_plane.context}")
    flags = (*target, f"--state-dir={source.state}", "-y")
    done = source.run("local", "export", "--project=default", *flags)
    assert done.returncode == 0, done.stderr
    assert "web" in real_plane("get", "workloads", "-o", "name")
    assert real_plane("get", "projects,serviceentitlements", "-o", "name") == ""
