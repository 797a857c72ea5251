"""A platform on a full or read-only disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testkit.processes.local_platform import LocalPlatform

pytestmark = pytest.mark.e2e


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 9 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=9m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("mount is not installed")
    if mounted.returncode:
        pytest.skip(f"cannot mount a file system: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def on_small_disk(small_disk: Path) -> Iterator[LocalPlatform]:
    platform = LocalPlatform(small_disk / "state")
    yield platform
    platform.down()


def fill_disk(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"0" * 4096):
                pass
        except OSError:
            return filler
    raise AssertionError("the disk is not full")


@pytest.mark.parametrize("crashes", [False, True])
def test_on_a_full_disk_the_platform_starts_serves_reads_and_recovers(
    on_small_disk: LocalPlatform, crashes: bool
) -> None:
    assert on_small_disk.up().returncode == 0
    if crashes:
        on_small_disk.kill()
    else:
        assert on_small_disk.down().returncode == 0
    filler = fill_disk(on_small_disk.state.parent)
    started = on_small_disk.up()
    assert started.returncode == 0, started.stderr
    kubeconfig = f"--kubeconfig={on_small_disk.kubeconfig}"
    assert "DFW" in on_small_disk.run("cities", kubeconfig).stdout
    deploy = ("deploy", "web", "--image=web:1", "--city=DFW", "--yes", kubeconfig)
    refused = on_small_disk.run(*deploy)
    assert refused.returncode != 0
    assert "disk is full" in refused.stderr
    filler.unlink()
    deployed = on_small_disk.run(*deploy)
    assert deployed.returncode == 0, deployed.stderr


def test_the_first_start_on_a_full_disk_reports_it(on_small_disk: LocalPlatform) -> None:
    fill_disk(on_small_disk.state.parent)
    refused = on_small_disk.up()
    assert refused.returncode == 1
    assert f"disk that holds {on_small_disk.state} is full" in refused.stderr
    assert "bytes free" in refused.stderr


def test_a_start_on_a_read_only_disk_reports_it(
    on_small_disk: LocalPlatform,
) -> None:
    disk = str(on_small_disk.state.parent)
    on_small_disk.state.mkdir()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    refused = on_small_disk.up()
    assert refused.returncode == 1
    assert f"disk that holds {on_small_disk.state} is read-only" in refused.stderr
