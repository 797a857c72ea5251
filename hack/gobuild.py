"""Programs of others that tests need, built with Go from the module proxy.

A wrapper module pins them: a folder with go.mod and go.sum. What is built lies outside of the tree,
in the user's cache directory, one folder for each program and version, and is used again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_BUILD_S = 3600


class CannotBuild(Exception):
    """And why."""


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    module: Path  # the folder of the wrapper module
    package: str  # what to build there
    version: str
    linked: str = ""  # more flags for the linker


def cache_of(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME") or str(Path.home())
    cache = environment.get("XDG_CACHE_HOME", "")
    root = Path(cache) if os.path.isabs(cache) else Path(home) / ".cache"
    return root / "datum-compute"


def path_of(program: Program, environment: Mapping[str, str]) -> Path:
    return cache_of(environment) / f"{program.name}-{program.version}" / program.name


def built(program: Program, environment: Mapping[str, str]) -> Path:
    """Where it is; built now if it is not there yet."""
    target = path_of(program, environment)
    if not target.exists():
        go = shutil.which("go", path=environment.get("PATH", ""))
        if go is None:
            raise CannotBuild(f"there is no go to build {program.name} with")
        _build(program, target, go, environment)
    return target


def link(program: Path, name: Path) -> None:
    """Under another name, at once or not at all."""
    partial = name.with_suffix(f".{os.getpid()}")
    partial.symlink_to(program)
    partial.replace(name)


def _build(program: Program, target: Path, go: str, environment: Mapping[str, str]) -> None:
    """Whole or not at all; two who want it at once build it once."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as folder:
        if target.exists():
            return
        sys.stderr.write(f"building {program.name} {program.version} with {go}; once, minutes\n")
        made = Path(folder) / program.name
        flags = f"-ldflags=-s -w {program.linked}".rstrip()
        done = subprocess.run(
            [go, "build", "-trimpath", "-mod=readonly", flags, "-o", str(made), program.package],
            cwd=program.module,
            env={**environment, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
        if done.returncode != 0:
            raise CannotBuild(f"building {program.name} failed: {done.stderr.strip()[-500:]}")
        made.replace(target)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
