"""Platforms for tests; no process outlives its test.

``platform`` is a new platform for one test. ``shared_platform`` is one for the session; most tests
of kubectl only need a new namespace of it (``in_namespace``).
"""

from __future__ import annotations

import gc
import hashlib
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from hack.find_kubectl import NoKubectl, kubectl
from testkit.processes.api_servers import RealServers, running_servers
from testkit.processes.kubectl import Kubectl
from testkit.processes.local_platform import CITIES, LocalPlatform, allow_on_platform
from tests.e2e.failure_report import describe_topology
from tests.e2e.processes import Api, project_with_cleanup, running_processes
from tests.e2e.topologies import TOPOLOGIES, Topology
from tests.karmada.assets import needed_karmada
from tests.kubernetes.topology import KubernetesTopology

PROJECT = "project/default"
_NAME_MAX = 50


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build kubectl before the first test, because a build exceeds the test timeout."""
    if any("needs_kubectl" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            kubectl()
        except NoKubectl:
            return  # reported by needs_kubectl in each test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the topology to the report of a failed test."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    for topology in [arguments[name] for name in arguments if name.endswith("topology")][:1]:
        if report.failed:
            report.sections.append(("state of the planes", describe_topology(topology)))
    return report


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """Report unclosed resources in the test that leaked them, not in a later one."""
    yield
    gc.collect()


@pytest.fixture
def stopped_platform(tmp_path: Path) -> Iterator[LocalPlatform]:
    """A platform that has never been started."""
    platform = LocalPlatform(tmp_path / "state")
    yield platform
    platform.down()


@pytest.fixture
def platform(stopped_platform: LocalPlatform) -> LocalPlatform:
    done = stopped_platform.up("--port", "0")
    assert done.returncode == 0, done.stderr
    return stopped_platform


@pytest.fixture(scope="session")
def needs_kubectl() -> None:
    try:
        kubectl()
    except NoKubectl as error:
        if os.environ.get("KUBECTL"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def shared_platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlatform]:
    """A platform for all tests that remove what they create."""
    running = LocalPlatform(tmp_path_factory.mktemp("shared") / "state")
    done = running.up("--port", "0")
    assert done.returncode == 0, done.stderr
    for city in CITIES:
        allow_on_platform(running, city)
    yield running
    running.down()


@pytest.fixture(scope="session")
def in_project(needs_kubectl: None, shared_platform: LocalPlatform) -> Kubectl:
    """kubectl of a project administrator; the controllers of the project run."""
    return Kubectl(shared_platform.kubeconfig, PROJECT)


@pytest.fixture(scope="session")
def in_platform(needs_kubectl: None, shared_platform: LocalPlatform) -> Kubectl:
    """kubectl of the administrator of the platform plane, where no controller handles workloads."""
    return Kubectl(shared_platform.kubeconfig, "platform")


@pytest.fixture
def in_namespace(in_platform: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """kubectl in a new namespace of the platform plane."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:_NAME_MAX].strip("-")
    # Shortened names may be equal.
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:6]
    name = f"{words}-{digest}"
    in_platform("create", "namespace", name)
    yield in_platform.in_namespace(name)
    in_platform("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def real_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServers]:
    with running_servers(tmp_path_factory.mktemp("kubernetes")) as servers:
        yield servers


@pytest.fixture
def real_plane(request: pytest.FixtureRequest, real_servers: RealServers) -> Iterator[Kubectl]:
    """A new kube-apiserver on the shared etcd."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    plane = real_servers.start_plane(name)
    try:
        yield plane.admin
        assert plane.refusals() == [], "the shipped roles suffice"
    finally:
        real_servers.stop_plane(name)


# --- topologies (topologies.py)


@pytest.fixture(scope="module", params=TOPOLOGIES)
def topology(request: pytest.FixtureRequest) -> Topology:
    """A topology that the tests of a module share; each test removes what it creates."""
    found: Topology = request.getfixturevalue(f"{request.param}_topology")
    return found


@pytest.fixture(scope="session")
def embedded_topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """One embedded topology for the session; each test removes what it creates."""
    yield from running_processes(tmp_path_factory.mktemp("topology"), "dfw", "ord")


@pytest.fixture(scope="session")
def kubernetes_topology(
    tmp_path_factory: pytest.TempPathFactory, needs_kubectl: None, real_servers: RealServers
) -> Iterator[Topology]:
    """One Kubernetes topology for the session, because five API servers start slowly."""
    folder = tmp_path_factory.mktemp("topology")
    yield from _run_topology(KubernetesTopology(real_servers, folder, ("dfw", "ord")))


@pytest.fixture(scope="session")
def karmada_topology(
    tmp_path_factory: pytest.TempPathFactory, needs_kubectl: None
) -> Iterator[Topology]:
    """A topology with a real Karmada as the hub."""
    yield from _with_karmada(tmp_path_factory.mktemp("karmada"), has_our_cells=False)


@pytest.fixture(scope="session")
def mixed_topology(
    tmp_path_factory: pytest.TempPathFactory, needs_kubectl: None
) -> Iterator[Topology]:
    """A topology with a real Karmada, whose members are our own servers."""
    yield from _with_karmada(tmp_path_factory.mktemp("mixed"), has_our_cells=True)


def _with_karmada(folder: Path, *, has_our_cells: bool) -> Iterator[Topology]:
    with running_servers(folder) as servers:
        yield from _run_topology(
            KubernetesTopology(
                servers,
                folder,
                ("dfw", "ord"),
                with_karmada=needed_karmada(),
                has_our_cells=has_our_cells,
            )
        )


def _run_topology(found: KubernetesTopology) -> Iterator[Topology]:
    try:
        found.prepare()
        found.up()
        yield found
    finally:
        codes = found.down()
    assert found.refusals() == {}, "the shipped roles suffice"
    assert set(codes) == {0}, "every manager exits with code 0"


@pytest.fixture
def hub(topology: Topology) -> Api:
    """A client of the hub with the permissions of the controllers."""
    return topology.api("hub", manager=True)


@pytest.fixture
def project(topology: Topology) -> Iterator[Api]:
    """A client of the default project; all workloads are deleted after the test."""
    yield from project_with_cleanup(topology)
