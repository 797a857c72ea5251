"""Backups of a platform that runs, restored into the same place and onto a new one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.local_platform import LocalPlatform, eventually
from tests.e2e.test_full_disk import fill, small_disk

pytestmark = pytest.mark.e2e
__all__ = ["small_disk"]  # a fixture


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[LocalPlatform]:
    running = LocalPlatform(tmp_path / "state")
    assert running.up("--cells", "dfw").returncode == 0
    yield running
    running.down()


def deploy(platform: LocalPlatform, name: str) -> None:
    flags = ("--image=x.example/web:1", "--city=DFW", "-y", f"--kubeconfig={platform.kubeconfig}")
    done = platform.run("deploy", name, *flags)
    assert done.returncode == 0, done.stderr


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def workloads(platform: LocalPlatform) -> list[str]:
    found = platform.objects("project/default", "workloads")
    return sorted(w["metadata"]["name"] for w in found)


def test_back_to_the_moment_of_the_backup_and_on_from_there(platform: LocalPlatform) -> None:
    deploy(platform, "web")
    file = str(platform.state.parent / "a.backup")
    assert "while it ran" in succeeded(platform.run("local", "backup", file))
    deploy(platform, "later")
    refused = platform.run("local", "restore", file, "-y")
    assert refused.returncode == 2, "it runs"
    platform.kill()  # without a farewell: the WAL holds what the database does not
    succeeded(platform.run("local", "restore", file, "-y"))
    succeeded(platform.up())
    assert workloads(platform) == ["web"]
    deploy(platform, "again")

    def only_wanted() -> bool:
        found = platform.objects("cell/dfw", "servers")
        return sorted(s["metadata"]["name"].partition("-")[0] for s in found) == ["again", "web"]

    eventually(only_wanted, "nothing of the lost time is left")


def test_a_platform_moves_to_another_directory_with_its_tokens(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    deploy(platform, "web")
    file = str(tmp_path / "a.backup")
    succeeded(platform.run("local", "backup", file))
    token = platform.kubeconfig.read_text()
    assert platform.down().returncode == 0
    moved = LocalPlatform(tmp_path / "moved")
    try:
        succeeded(moved.run("local", "restore", file, f"--state-dir={moved.state}"))
        succeeded(moved.up())
        assert moved.kubeconfig.read_text() == token, "the same port, authority and tokens"
        assert workloads(moved) == ["web"]
    finally:
        moved.down()


def test_a_full_disk_is_said_and_nothing_changes(small_disk: Path, tmp_path: Path) -> None:
    platform = LocalPlatform(small_disk / "state")
    try:
        assert platform.up("--cells", "dfw").returncode == 0
        deploy(platform, "web")
        file = tmp_path / "a.backup"
        succeeded(platform.run("local", "backup", str(file)))
        filler = fill(small_disk)
        refused = platform.run("local", "backup", str(small_disk / "b.backup"))
        assert refused.returncode == 1
        assert "full" in refused.stderr
        assert not list(small_disk.glob("*b.backup*"))
        assert platform.down().returncode == 0
        refused = platform.run("local", "restore", str(file), "-y")
        assert refused.returncode == 1
        assert "full" in refused.stderr
        filler.unlink()
        assert platform.up().returncode == 0
        assert workloads(platform) == ["web"]
    finally:
        platform.down()


def test_cells_with_processes_of_their_own_are_in_the_backup(tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path / "state")
    file = str(tmp_path / "a.backup")
    try:
        assert platform.up("--processes", "--cells", "dfw").returncode == 0
        deploy(platform, "web")
        succeeded(platform.run("local", "backup", file))
        assert platform.down().returncode == 0
        shutil.rmtree(platform.state)
        succeeded(platform.run("local", "restore", file))
        succeeded(platform.up())
        assert workloads(platform) == ["web"]
        (server,) = platform.objects("cell/dfw", "servers")
        assert server["metadata"]["name"].startswith("web-")
    finally:
        platform.down()
