"""Platforms for tests; no process outlives its test.

``platform`` is a platform of a test's own. ``shared`` is one for a whole session, with a namespace
``space`` for each test that asks for it: most tests of kubectl need no more than that.
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
from tests.e2e.aftermath import aftermath
from tests.e2e.processes import Api, empty_project, running_processes
from tests.e2e.topologies import TOPOLOGIES, Topology
from tests.karmada.assets import needed_karmada
from tests.kubernetes.topology import KubernetesTopology

PROJECT = "project/default"
_NAME_MAX = 50


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for kubectl before the first test: building one takes longer than a test may."""
    if any("needs_kubectl" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            kubectl()
        except NoKubectl:
            return  # each test says so itself


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure on a topology says what its planes held then: the next run may not fail."""
    report = yield
    arguments = getattr(item, "funcargs", {})
    for topology in [arguments[name] for name in arguments if name.endswith("topology")][:1]:
        if report.failed:
            report.sections.append(("what the planes hold", aftermath(topology)))
    return report


@pytest.fixture(autouse=True)
def leaves_nothing_open() -> Iterator[None]:
    """What a test forgot to close is found while its own rules for warnings hold, not in the middle
    of a later test that has nothing to do with it."""
    yield
    gc.collect()


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[LocalPlatform]:
    """A platform that has never been started."""
    platform = LocalPlatform(tmp_path / "state")
    yield platform
    platform.down()


@pytest.fixture
def platform(stopped: LocalPlatform) -> LocalPlatform:
    done = stopped.up("--port", "0")
    assert done.returncode == 0, done.stderr
    return stopped


@pytest.fixture(scope="session")
def needs_kubectl() -> None:
    try:
        kubectl()
    except NoKubectl as error:
        if os.environ.get("KUBECTL"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPlatform]:
    """One platform for all tests that leave it as they found it."""
    running = LocalPlatform(tmp_path_factory.mktemp("shared") / "state")
    done = running.up("--port", "0")
    assert done.returncode == 0, done.stderr
    for city in CITIES:
        allow_on_platform(running, city)
    yield running
    running.down()


@pytest.fixture(scope="session")
def in_project(needs_kubectl: None, shared: LocalPlatform) -> Kubectl:
    """As the administrator of a project, beside controllers that act on workloads."""
    return Kubectl(shared.kubeconfig, PROJECT)


@pytest.fixture(scope="session")
def in_platform(needs_kubectl: None, shared: LocalPlatform) -> Kubectl:
    """As the administrator of the platform plane, where nobody acts on workloads."""
    return Kubectl(shared.kubeconfig, "platform")


@pytest.fixture
def space(in_platform: Kubectl, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """A namespace of the test's own on the platform plane."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:_NAME_MAX].strip("-")
    digest = hashlib.sha256(request.node.name.encode()).hexdigest()[:6]  # cut names may be equal
    name = f"{words}-{digest}"
    in_platform("create", "namespace", name)
    yield in_platform.within(name)
    in_platform("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def real_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServers]:
    with running_servers(tmp_path_factory.mktemp("kubernetes")) as servers:
        yield servers


@pytest.fixture
def real_plane(request: pytest.FixtureRequest, real_servers: RealServers) -> Iterator[Kubectl]:
    """A kube-apiserver of the test's own; on the etcd of all of them."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:8]
    plane = real_servers.start_plane(name)
    try:
        yield plane.admin
        assert plane.refusals() == [], "the shipped roles suffice"
    finally:
        real_servers.stop_plane(name)


# --- what the suites run on (topologies.py)


@pytest.fixture(scope="module", params=TOPOLOGIES)
def topology(request: pytest.FixtureRequest) -> Topology:
    """Shared by the tests of a module, which leave it as they found it."""
    found: Topology = request.getfixturevalue(f"{request.param}_topology")
    return found


@pytest.fixture(scope="session")
def embedded_topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """One for all suites, each of which leaves it as it found it."""
    yield from running_processes(tmp_path_factory.mktemp("topology"), "dfw", "ord")


@pytest.fixture(scope="session")
def kubernetes_topology(
    tmp_path_factory: pytest.TempPathFactory, needs_kubectl: None, real_servers: RealServers
) -> Iterator[Topology]:
    """One for the whole session: five API servers take their time."""
    folder = tmp_path_factory.mktemp("topology")
    yield from _running(KubernetesTopology(real_servers, folder, ("dfw", "ord")))


@pytest.fixture(scope="session")
def karmada_topology(
    tmp_path_factory: pytest.TempPathFactory, needs_kubectl: None
) -> Iterator[Topology]:
    """A real Karmada as the hub."""
    yield from _with_karmada(tmp_path_factory.mktemp("karmada"), has_our_cells=False)


@pytest.fixture(scope="session")
def mixed_topology(
    tmp_path_factory: pytest.TempPathFactory, needs_kubectl: None
) -> Iterator[Topology]:
    """The same, and its members are servers of ours."""
    yield from _with_karmada(tmp_path_factory.mktemp("mixed"), has_our_cells=True)


def _with_karmada(folder: Path, *, has_our_cells: bool) -> Iterator[Topology]:
    with running_servers(folder) as servers:
        yield from _running(
            KubernetesTopology(
                servers,
                folder,
                ("dfw", "ord"),
                with_karmada=needed_karmada(),
                has_our_cells=has_our_cells,
            )
        )


def _running(found: KubernetesTopology) -> Iterator[Topology]:
    try:
        found.prepare()
        found.up()
        yield found
    finally:
        codes = found.down()
    assert found.refusals() == {}, "the shipped roles suffice"
    assert set(codes) == {0}, "every manager stops in an orderly way"


@pytest.fixture
def hub(topology: Topology) -> Api:
    """As the controllers see it."""
    return topology.api("hub", manager=True)


@pytest.fixture
def project(topology: Topology) -> Iterator[Api]:
    """The default project of the topology for a test, and nothing of the test left in it."""
    yield from empty_project(topology)
