"""The overlays ``cell`` and ``management-plane`` as a federation, under the shipped accounts.

Workloads become pods, and users get logs, usage and exec sessions of these pods.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from datum_compute.api.planes import path_prefix, project_plane
from datum_compute.api.quota import SERVICE_NAME
from datum_compute.api.services import consumer_name
from testkit.processes.local_platform import eventually
from tests.kubernetes.node import FAILED, FAILING
from tests.kubernetes.overlay_federation import (
    CELL,
    MANAGEMENT,
    OverlayFederation,
    overlay_federation,
)

pytestmark = [pytest.mark.e2e, pytest.mark.kubernetes, pytest.mark.timeout(240)]

WEB = ("--image=x.example/web:1", "--city=DFW", "--min=2", "-y")


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OverlayFederation]:
    with overlay_federation(tmp_path_factory.mktemp("overlays")) as found:
        yield found


@pytest.fixture(scope="module")
def web(federation: OverlayFederation) -> Iterator[list[str]]:
    """Deploy a workload, and return the names of its two instances."""
    done = federation.datumctl("edith", "deploy", "web", *WEB)
    assert done.returncode == 0, done.stderr
    listed = federation.datumctl("edith", "instances", "-o", "json")
    yield sorted(item["name"] for item in json.loads(listed.stdout)["items"])
    done = federation.datumctl("edith", "destroy", "web", "--confirm=web")
    assert done.returncode == 0, done.stderr
    eventually(lambda: pods(federation) == [], "no pod is left", within_s=60)


def pods(federation: OverlayFederation) -> list[str]:
    found = federation.planes[CELL].admin.json("get", "pods", "--all-namespaces")["items"]
    return [pod["status"]["phase"] for pod in found]


def test_instances_are_pods_of_the_cell(federation: OverlayFederation, web: list[str]) -> None:
    assert len(web) == 2
    assert pods(federation) == ["Running"] * 2


def test_logs_come_from_the_pods(federation: OverlayFederation, web: list[str]) -> None:
    done = federation.datumctl("vera", "logs", "web")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(" | ")[0] for line in lines].count(web[0]) == 2
    assert len(lines) == 4
    done = federation.datumctl("vera", "logs", "web", "--instance", web[1], "--tail=1")
    assert done.stdout.endswith(" line 2\n"), done.stderr
    assert len(done.stdout.splitlines()) == 1


def test_a_command_runs_in_the_pod_and_returns_its_exit_code(
    federation: OverlayFederation, web: list[str]
) -> None:
    done = federation.datumctl("edith", "exec", web[0], "-i", "--", "cat", "-", stdin="some words")
    assert (done.returncode, done.stdout) == (0, "cat\nsome words"), done.stderr
    done = federation.datumctl("edith", "exec", web[0], "--", FAILING)
    assert done.returncode == FAILED, done.stderr


def test_a_viewer_cannot_run_a_command(federation: OverlayFederation, web: list[str]) -> None:
    done = federation.datumctl("vera", "exec", web[0], "--", "cat")
    assert done.returncode != 0
    assert "instances/exec" in done.stderr


def test_the_usage_of_pods_is_shown(federation: OverlayFederation, web: list[str]) -> None:
    done = federation.datumctl("vera", "instances", "top", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["items"]
    assert [(row["cpuMillicores"], row["memoryMebibytes"]) for row in found] == [(121, 69)] * 2


def test_doctor_reports_that_instances_are_pods(
    federation: OverlayFederation, web: list[str]
) -> None:
    done = federation.datumctl("vera", "doctor")
    assert "Runtime: pods of the cell's cluster" in done.stdout, done.stderr


@pytest.mark.parametrize("token", ["", "invalid"])
def test_an_unknown_user_is_unauthorized(
    federation: OverlayFederation, web: list[str], token: str
) -> None:
    trust = ssl.create_default_context(
        cafile=str(federation.folder / MANAGEMENT / "gateway/ca.crt")
    )
    url = f"https://127.0.0.1:{federation.gateways[MANAGEMENT]}"
    url += f"{path_prefix(project_plane('default'))}/gateway/v1alpha/namespaces/default"
    headers = {"authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"{url}/instances/{web[0]}/log", headers=headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, context=trust, timeout=10)
    refused.value.close()
    assert refused.value.code == 401


def test_a_suspended_project_has_no_pods_until_it_is_resumed(
    federation: OverlayFederation, web: list[str]
) -> None:
    _suspend(federation, suspended=True)
    eventually(lambda: pods(federation) == [], "no pod is left", within_s=60)
    eventually(
        lambda: "Suspended: The project" in federation.datumctl("vera", "status", "web").stdout,
        "the workload is shown as suspended",
    )
    _suspend(federation, suspended=False)
    eventually(lambda: pods(federation) == ["Running"] * 2, "the pods run again", within_s=60)
    listed = federation.datumctl("vera", "instances", "-o", "json")
    assert sorted(item["name"] for item in json.loads(listed.stdout)["items"]) == web


def _suspend(federation: OverlayFederation, *, suspended: bool) -> None:
    patch = json.dumps({"spec": {"suspended": suspended}})
    consumer = f"serviceconsumer/{consumer_name(SERVICE_NAME, 'default')}"
    federation.planes["platform"].admin("patch", consumer, "--type=merge", f"--patch={patch}")
