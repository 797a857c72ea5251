"""Backups of a running platform, restored to the same and to another directory."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.local_platform import LocalPlatform, eventually
from tests.e2e.test_full_disk import fill_disk, small_disk

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


def output_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def workloads(platform: LocalPlatform) -> list[str]:
    found = platform.objects("project/default", "workloads")
    return sorted(w["metadata"]["name"] for w in found)


def test_a_restore_returns_to_the_state_of_the_backup(platform: LocalPlatform) -> None:
    deploy(platform, "web")
    file = str(platform.state.parent / "a.backup")
    assert "while running" in output_of(platform.run("local", "backup", file))
    deploy(platform, "later")
    refused = platform.run("local", "restore", file, "-y")
    assert refused.returncode == 2, "the platform is running"
    platform.kill()  # the WAL contains writes that the database file does not
    output_of(platform.run("local", "restore", file, "-y"))
    output_of(platform.up())
    assert workloads(platform) == ["web"]
    deploy(platform, "again")

    def only_desired_servers() -> bool:
        found = platform.objects("cell/dfw", "servers")
        return sorted(s["metadata"]["name"].partition("-")[0] for s in found) == ["again", "web"]

    eventually(only_desired_servers, "servers created after the backup are removed")


def test_a_platform_moves_to_another_directory_with_its_tokens(
    platform: LocalPlatform, tmp_path: Path
) -> None:
    deploy(platform, "web")
    file = str(tmp_path / "a.backup")
    output_of(platform.run("local", "backup", file))
    token = platform.kubeconfig.read_text()
    assert platform.down().returncode == 0
    moved = LocalPlatform(tmp_path / "moved")
    try:
        output_of(moved.run("local", "restore", file, f"--state-dir={moved.state}"))
        output_of(moved.up())
        assert moved.kubeconfig.read_text() == token, "the same port, authority and tokens"
        assert workloads(moved) == ["web"]
    finally:
        moved.down()


def test_backup_and_restore_on_a_full_disk_report_it_and_change_nothing(
    small_disk: Path, tmp_path: Path
) -> None:
    platform = LocalPlatform(small_disk / "state")
    try:
        assert platform.up("--cells", "dfw").returncode == 0
        deploy(platform, "web")
        file = tmp_path / "a.backup"
        output_of(platform.run("local", "backup", str(file)))
        filler = fill_disk(small_disk)
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


def test_a_backup_contains_cells_that_run_in_separate_processes(tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path / "state")
    file = str(tmp_path / "a.backup")
    try:
        assert platform.up("--processes", "--cells", "dfw").returncode == 0
        deploy(platform, "web")
        output_of(platform.run("local", "backup", file))
        assert platform.down().returncode == 0
        shutil.rmtree(platform.state)
        output_of(platform.run("local", "restore", file))
        output_of(platform.up())
        assert workloads(platform) == ["web"]
        (server,) = platform.objects("cell/dfw", "servers")
        assert server["metadata"]["name"].startswith("web-")
    finally:
        platform.down()
