"""Cells join with a token and leave, with the commands of an operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from datum_compute.server.http.listen import bind_listener
from testkit.processes.local_platform import eventually
from tests.e2e.processes import (
    CLUSTERS,
    INSTANCES,
    NAMESPACE,
    WORKS,
    Api,
    Processes,
    condition,
    running_processes,
    workload,
)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    yield from running_processes(tmp_path_factory.mktemp("members"), "dfw")


@pytest.fixture
def hub(processes: Processes) -> Api:
    return processes.api("hub")


def new_token(processes: Processes, folder: Path, *flags: str) -> Path:
    created = processes.run("cell", "token", "-o", "json", *flags)
    assert created.returncode == 0, created.stderr
    file = folder / "token.json"
    file.write_text(created.stdout)
    return file


def join(processes: Processes, name: str, token: Path, folder: Path | None = None) -> object:
    directory = folder or processes.directory(name)
    flags = (f"--name={name}", f"--city={name}", f"--token-file={token}")
    return processes.run("cell", "join", *flags, f"--state-dir={directory}")


def status_code_for_cell(processes: Processes, name: str) -> int:
    """Return the status code of the hub for a request with the certificate of a cell."""
    return processes.as_cell(name).status_code("GET", f"/planes/hub{CLUSTERS}/{name}")


def test_a_cell_joins_serves_and_leaves(processes: Processes, hub: Api, tmp_path: Path) -> None:
    token = new_token(processes, tmp_path)
    joined = join(processes, "lhr", token)
    assert joined.returncode == 0, joined.stderr  # type: ignore[attr-defined]
    assert join(processes, "lhr", token).returncode == 0, "the same cell may repeat its join"  # type: ignore[attr-defined]
    other = join(processes, "ams", token, tmp_path / "ams")
    assert other.returncode == 5  # type: ignore[attr-defined]
    assert "was used by cell lhr" in other.stderr  # type: ignore[attr-defined]
    assert hub.names(CLUSTERS) == ["dfw", "lhr"]

    processes.start("lhr")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/lhr"), "Ready")[0] == "True", "the cell is Ready"
    )
    project = processes.api("project/default")
    project.create(f"{NAMESPACE}/workloads", workload("moved", "LHR"))
    eventually(
        lambda: condition(project.find(f"{NAMESPACE}/workloads/moved"), "Available")[0] == "True",
        "the workload is available in the new city",
    )
    assert status_code_for_cell(processes, "lhr") == 200

    refused = processes.run("cell", "leave", "lhr", "-y")
    assert refused.returncode == 4
    assert "1 deployment, such as" in refused.stderr
    left = processes.run("cell", "leave", "lhr", "-y", "--force")
    assert left.returncode == 0, left.stderr
    assert hub.names(CLUSTERS) == ["dfw"]
    assert status_code_for_cell(processes, "lhr") == 403
    cell = processes.cell_api("lhr")
    eventually(lambda: cell.items(INSTANCES) == [], "its instances are deleted")
    assert [w for w in hub.items(WORKS) if w["metadata"]["namespace"] == "karmada-es-lhr"] == []
    project.delete(f"{NAMESPACE}/workloads/moved")
    processes.terminate("lhr")


def test_a_dead_cell_leaves_with_force_and_no_tombstone_remains(
    processes: Processes, hub: Api, tmp_path: Path
) -> None:
    assert join(processes, "syd", new_token(processes, tmp_path)).returncode == 0  # type: ignore[attr-defined]
    processes.start("syd")
    project = processes.api("project/default")
    project.create(f"{NAMESPACE}/workloads", workload("lost", "SYD"))
    eventually(
        lambda: condition(project.find(f"{NAMESPACE}/workloads/lost"), "Available")[0] == "True",
        "the workload is available",
    )
    processes.kill("syd")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/syd"), "Ready")[0] == "False",
        "the cell is not Ready",
    )
    left = processes.run("cell", "leave", "syd", "-y", "--force")
    assert left.returncode == 0, left.stderr
    assert [w for w in hub.items(WORKS) if w["metadata"]["namespace"] == "karmada-es-syd"] == []
    assert hub.items(INSTANCES) == []
    eventually(
        lambda: (
            condition(project.find(f"{NAMESPACE}/workloads/lost"), "Available")
            == ("False", "NoMatchingLocation")
        ),
        "the workload reports that no cell serves the city",
    )
    project.delete(f"{NAMESPACE}/workloads/lost")


def test_a_join_with_a_wrong_or_expired_token_creates_nothing(
    processes: Processes, hub: Api, tmp_path: Path
) -> None:
    token = new_token(processes, tmp_path)
    document = json.loads(token.read_text())
    token.write_text(json.dumps({**document, "token": document["token"] + "x"}))
    wrong = join(processes, "ams", token, tmp_path / "ams")
    assert wrong.returncode == 5  # type: ignore[attr-defined]
    assert "rejected the join token" in wrong.stderr  # type: ignore[attr-defined]
    expired = join(processes, "ams", new_token(processes, tmp_path, "--ttl=0s"), tmp_path / "ams")
    assert expired.returncode == 5  # type: ignore[attr-defined]
    assert "expired" in expired.stderr  # type: ignore[attr-defined]
    assert "ams" not in hub.names(CLUSTERS)
    assert not (tmp_path / "ams" / "membership.json").exists()


def test_no_secret_of_a_cell_is_in_a_log(processes: Processes) -> None:
    tokens = [
        token
        for name in ("center", "dfw")
        for token in json.loads((processes.directory(name) / "tokens.json").read_text()).values()
    ]
    for name in ("center", "dfw"):
        for log in ("server.log", "audit.log"):
            text = (processes.directory(name) / log).read_text()
            assert not [token for token in tokens if token in text]


def test_a_cell_restarted_on_another_port_updates_its_address(
    processes: Processes, hub: Api
) -> None:
    def address() -> str:
        return str((hub.find(f"{CLUSTERS}/dfw") or {})["spec"]["apiEndpoint"])

    before = address()
    processes.kill("dfw")
    eventually(
        lambda: condition(hub.find(f"{CLUSTERS}/dfw"), "Ready")[0] == "False",
        "the cell is not Ready",
    )
    with bind_listener(urlsplit(before).port or 0) as other:
        other.listen()
        processes.start("dfw")
        eventually(
            lambda: condition(hub.find(f"{CLUSTERS}/dfw"), "Ready")[0] == "True",
            "the cell is Ready",
        )
    assert address() != before
    processes.terminate("dfw")
