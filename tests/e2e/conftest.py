"""Platforms for tests; no process outlives its test.

``platform`` is a platform of a test's own. ``shared`` is one for a whole session, with a namespace
``space`` for each test that asks for it: most tests of kubectl need no more than that.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hack.find_kubectl import NoKubectl, kubectl

from tests.e2e.kubectl import Kubectl
from tests.e2e.platform import LocalPlatform

PROJECT = "project/default"
CITIES = ("DFW", "LHR", "ORD")
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
        _allow_on_platform(running, city)
    yield running
    running.down()


def _allow_on_platform(running: LocalPlatform, city: str) -> None:
    """Let workloads on the platform plane name the city, as a project's LocationBinding does."""
    config = yaml.safe_load(running.kubeconfig.read_text())
    (cluster,) = [c["cluster"] for c in config["clusters"] if c["name"] == "platform"]
    (user,) = [u["user"] for u in config["users"] if u["name"] == "platform"]
    binding = {
        "apiVersion": "networking.datumapis.com/v1alpha",
        "kind": "LocationBinding",
        "metadata": {"name": city.lower()},
        "spec": {
            "locationRef": {"name": city.lower()},
            "locationClassName": "datum-managed",
            "topology": {"topology.datum.net/city-code": city},
        },
    }
    request = urllib.request.Request(
        f"{cluster['server']}/apis/networking.datumapis.com/v1alpha/locationbindings",
        data=json.dumps(binding).encode(),
        headers={"authorization": f"Bearer {user['token']}", "content-type": "application/json"},
    )
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trusted = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(request, context=trusted, timeout=30) as answer:
        assert answer.status == 201


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
