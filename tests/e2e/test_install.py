"""The wheel in a new virtual environment, with the run-time dependencies only, as a user has it.

The test needs no package index: it copies the distributions that requirements/run.lock lists from
the environment of the tests.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from testkit.processes.local_platform import LocalPlatform

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
COMMAND_S = 120


def run(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def runtime_distributions() -> list[Distribution]:
    lock = (ROOT / "requirements" / "run.lock").read_text()
    return [distribution(name) for name in re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)]


def copy_distribution(found: Distribution, site_packages: Path) -> None:
    for file in found.files or ():
        if ".." not in file.parts:  # scripts
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(found.locate_file(file)), target)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the ``bin`` folder of a new environment with the wheel."""
    folder = tmp_path_factory.mktemp("install")
    environment = folder / "environment"
    run(sys.executable, "-m", "venv", environment)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    source = folder / "source"  # pip writes into the folder that it builds
    for name in ("src", "pyproject.toml", "README.md", "LICENSE"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        source.mkdir(exist_ok=True)
        copy(ROOT / name, source / name)
    options = ("--no-deps", "--no-index", "--no-build-isolation")
    run(*pip, "wheel", *options, "--wheel-dir", folder, source)
    (wheel,) = folder.glob("datum_compute-*.whl")
    python = environment / "bin" / "python"
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    for found in runtime_distributions():
        copy_distribution(found, Path(purelib.strip()))
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    return environment / "bin"


def test_the_wheel_contains_only_the_product(installed: Path) -> None:
    run(installed / "python", "-m", "pip", "check")  # run.lock lists every dependency
    listed = run(installed / "python", "-m", "pip", "show", "--files", "datum-compute")
    files = re.findall(r"^  (\S+)$", listed, re.MULTILINE)
    folders = {
        file.split("/")[0] for file in files if not file.startswith(("..", "datum_compute-"))
    }
    assert folders == {"datum_compute", "datumctl.py", "__pycache__"}


def test_the_installed_commands_start_deploy_and_stop(installed: Path, tmp_path: Path) -> None:
    platform = LocalPlatform(tmp_path / "state", installed)
    try:
        started = platform.up()
        assert started.returncode == 0, started.stderr
        deployed = platform.run("deploy", "web", "--image=x.example/web:1", "--city=DFW", "-y")
        assert deployed.returncode == 0, deployed.stderr
        assert str(installed.parent) in Path(f"/proc/{platform.pid}/cmdline").read_text()
    finally:
        stopped = platform.down()
    assert stopped.returncode == 0, stopped.stderr
    assert platform.pid == 0
