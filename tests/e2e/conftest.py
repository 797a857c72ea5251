"""Platforms for tests; no process outlives its test.

``platform`` is a platform of a test's own. ``shared`` is one for a whole session, with a namespace
``space`` for each test that asks for it: most tests of kubectl need no more than that.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.find_kubectl import NoKubectl, kubectl

from tests.e2e.kubectl import Kubectl
from tests.e2e.platform import CITIES, LocalPlatform, allow_on_platform

PROJECT = "project/default"
_NAME_MAX = 50


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for kubectl before the first test: building one takes longer than a test may."""
    if any("needs_kubectl" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            kubectl()
        except NoKubectl:
            return  # each test says so itself


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
