"""The embedded server responds like kube-apiserver, except for the differences in accepted.yaml.

A difference that is not in the list fails the test, and so does an entry that no longer differs.
steps.py describes references such as ``${...}``, comparison.py how responses are normalized.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml

from testkit.processes.api_servers import ADMIN_TOKEN, running_servers
from testkit.processes.local_platform import BIN, LocalPlatform, eventually
from testkit.processes.programs import start_process, stop
from tests.differential.comparison import Transcript, find_differences
from tests.differential.definition import WIDGETS
from tests.differential.sequences import SEQUENCES
from tests.differential.servers import ApiServer
from tests.differential.steps import get, post
from tests.kubernetes.topology import install_definitions

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes]

ACCEPTED = Path(__file__).parent / "accepted.yaml"
SHOWN_CHARACTERS = 160


def read_accepted() -> dict[str, str]:
    """Return the reason of each pattern."""
    groups = yaml.safe_load(ACCEPTED.read_text()) or []
    return {pattern: group["reason"] for group in groups for pattern in group["differences"]}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running_servers(tmp_path_factory.mktemp("theirs")) as servers:
        plane = servers.start_plane("compared")
        install_definitions(plane)
        trust = ssl.create_default_context(cafile=str(plane.certificate.authority))
        yield define_widgets(ApiServer("kubernetes", plane.server, ADMIN_TOKEN, trust))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The platform plane of a server without controllers."""
    platform = LocalPlatform(tmp_path_factory.mktemp("ours") / "state")
    platform.state.mkdir(mode=0o700)
    command = [str(BIN / "python"), "-m", "datum_compute.app.local_server", "--no-controllers"]
    server = start_process(
        [*command, f"--state-dir={platform.state}"], platform.state.parent / "server.log"
    )
    try:
        eventually(platform.kubeconfig.exists, "the planes are served")
        yield define_widgets(_connect(platform))
    finally:
        assert stop(server) == 0


def _connect(platform: LocalPlatform) -> ApiServer:
    config = yaml.safe_load(platform.kubeconfig.read_text())
    (cluster,) = [c["cluster"] for c in config["clusters"] if c["name"] == "platform"]
    (user,) = [u["user"] for u in config["users"] if u["name"] == "platform"]
    trust = ssl.create_default_context(cafile=str(platform.state / "ca.crt"))
    return ApiServer("ours", cluster["server"], user["token"], trust)


def define_widgets(server: ApiServer) -> ApiServer:
    """Create the definition of the custom kind of the sequences."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    steps = [post("define", definitions, WIDGETS), get("served", "/apis/example.com/v1", until=200)]
    made = server.run(steps)["define"]
    assert made.code == 201, made.body
    return server


def run_sequence(ours: ApiServer, theirs: ApiServer, sequence: str) -> list[tuple[str, Any, Any]]:
    space = f"space-{sequence}"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}}
    steps = [post("space", "/api/v1/namespaces", namespace), *SEQUENCES[sequence](space)]
    left, right = (Transcript(server.run(steps)) for server in (ours, theirs))
    return list(find_differences(sequence, left, right))


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_both_servers_respond_equally_to_a_sequence(
    ours: ApiServer, theirs: ApiServer, sequence: str
) -> None:
    found = run_sequence(ours, theirs, sequence)
    patterns = [p for p in read_accepted() if p.partition("/")[0] in ("*", sequence)]
    new = [
        f"{place}\n    ours:       {_shorten(mine)}\n    Kubernetes: {_shorten(other)}"
        for place, mine, other in found
        if not any(fnmatchcase(place, pattern) for pattern in patterns)
    ]
    assert not new, "\n".join(["responses differ from Kubernetes:", *new])
    unneeded = [
        pattern
        for pattern in patterns
        if pattern.partition("/")[0] == sequence
        and not any(fnmatchcase(place, pattern) for place, _, _ in found)
    ]
    assert not unneeded, f"no longer different; remove it from accepted.yaml: {unneeded}"


def test_every_accepted_difference_has_a_reason_and_a_sequence() -> None:
    for pattern, reason in read_accepted().items():
        assert len(reason) > 20, f"{pattern} has no reason"
        assert pattern.partition("/")[0] in SEQUENCES, f"{pattern} names no sequence"


def _shorten(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."
