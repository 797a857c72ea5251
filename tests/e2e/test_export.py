"""``local export``: a second platform, reached over its socket, ends up with the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import LocalPlatform, eventually
from testkit.processes.single_cluster import DEPLOY, installed
from tests.e2e.processes import SPACE, Api, condition
from tests.e2e.topologies import Topology

pytestmark = pytest.mark.e2e

CORE = "/api/v1/namespaces/default"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalPlatform]:
    platform = LocalPlatform(tmp_path / "here")
    try:
        started = platform.up("--cells", "dfw")
        assert started.returncode == 0, started.stderr
        yield platform
    finally:
        platform.down()


@pytest.fixture
def two(here: LocalPlatform, tmp_path: Path) -> Iterator[tuple[LocalPlatform, LocalPlatform]]:
    there = LocalPlatform(tmp_path / "there")
    try:
        started = there.up("--cells", "dfw")
        assert started.returncode == 0, started.stderr
        yield here, there
    finally:
        there.down()


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


def fill(platform: LocalPlatform) -> None:
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
    here: LocalPlatform, there: LocalPlatform | Topology, *flags: str, to: str = "platform"
) -> str:
    where = (f"--to-kubeconfig={there.kubeconfig}", f"--state-dir={here.state}")
    done = here.run("local", "export", f"--to={to}", *where, *flags)
    assert done.returncode == 0, done.stderr
    assert "do-not-print" not in done.stdout + done.stderr
    return done.stdout


def names(platform: LocalPlatform, kind: str) -> list[str]:
    found = platform.objects("project/default", kind)
    return sorted(f"{o['metadata'].get('namespace', '')}/{o['metadata']['name']}" for o in found)


def test_everything_arrives_runs_and_is_left_alone_the_second_time(
    two: tuple[LocalPlatform, LocalPlatform],
) -> None:
    here, there = two
    fill(here)
    planned = export(here, there, "--dry-run")
    assert "Workload" in planned
    assert names(there, "workloads") == [], "a dry run writes nothing"
    assert "All objects were copied to platform" in export(here, there, "-y")
    assert names(there, "workloads") == ["default/web"]
    assert "default/settings" in names(there, "configmaps")
    assert "default/key" in names(there, "secrets")
    projects = there.objects("platform", "projects")
    assert sorted(p["metadata"]["name"] for p in projects) == ["default", "shop"]
    eventually(lambda: _running(there), "the workload runs on the other side")
    before = _versions(there)
    assert "is there: " in export(here, there, "-y")
    assert _versions(there) == before, "nothing is written twice"


def test_one_plane_takes_one_project_and_conflicts_are_not_overwritten(
    two: tuple[LocalPlatform, LocalPlatform],
) -> None:
    here, there = two
    fill(here)
    changed = {**OBJECTS[1], "data": {"MODE": "slow"}}
    there.kubectl("project/default", "apply", "--server-side", "-f", "-", stdin=json.dumps(changed))
    flags = (f"--to-kubeconfig={there.kubeconfig}", f"--state-dir={here.state}", "-y")
    many = here.run("local", "export", "--to=project/default", *flags)
    assert many.returncode == 2
    assert "--project" in many.stderr
    chosen = ("--to=project/default", "--project=default", *flags)
    refused = here.run("local", "export", *chosen)
    assert refused.returncode == 20, refused.stderr
    assert names(there, "workloads") == []
    forced = here.run("local", "export", *chosen, "--force")
    assert forced.returncode == 0, forced.stderr
    (settings,) = [c for c in there.objects("project/default", "configmaps") if _is_settings(c)]
    assert settings["data"] == {"MODE": "fast"}


@pytest.mark.kubernetes
@pytest.mark.timeout(300)  # with the start of the API servers
def test_a_project_moves_to_real_planes_and_runs_there(
    here: LocalPlatform, kubernetes_topology: Topology
) -> None:
    there = kubernetes_topology
    fill(here)
    project = there.api("project/default")
    flags = ("--project=default", "-y")
    try:
        moved = export(here, there, *flags, to="project/default")
        assert "All objects were copied to project/default" in moved
        eventually(lambda: _is_available(project), "it runs there, with its data")
        before = _written(project)
        assert "is there: " in export(here, there, *flags, to="project/default")
        assert _written(project) == before, "nothing is written twice"
    finally:
        for path in (
            f"{SPACE}/workloads/web",
            f"{CORE}/configmaps/settings",
            f"{CORE}/secrets/key",
        ):
            project.code("DELETE", path)
        project.code("DELETE", "/api/v1/namespaces/front")
        eventually(lambda: not project.names(f"{SPACE}/workloads"), "nothing of it is left")


def _is_available(project: Api) -> bool:
    return condition(project.find(f"{SPACE}/workloads/web"), "Available")[0] == "True"


def _written(project: Api) -> list[str]:
    paths = (f"{SPACE}/workloads/web", f"{CORE}/configmaps/settings", f"{CORE}/secrets/key")
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
    """A number that only people move; the status of a workload goes on changing."""
    return str(metadata.get("generation") or metadata["resourceVersion"])


@pytest.mark.kubernetes
@pytest.mark.usefixtures("needs_kubectl")
def test_one_cluster_takes_a_project_although_it_has_the_definition_of_projects(
    real_plane: Kubectl, here: LocalPlatform
) -> None:
    installed(real_plane)
    real_plane("apply", "-f", str(DEPLOY / "single-cluster"))
    fill(here)
    there = (f"--to-kubeconfig={real_plane.kubeconfig}", f"--to={real_plane.context}")
    flags = (*there, f"--state-dir={here.state}", "-y")
    done = here.run("local", "export", "--project=default", *flags)
    assert done.returncode == 0, done.stderr
    assert "web" in real_plane("get", "workloads", "-o", "name")
    assert real_plane("get", "projects,serviceentitlements", "-o", "name") == ""
