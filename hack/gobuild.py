"""Builds third-party programs for tests with Go, from the module proxy.

A wrapper module (a folder with go.mod and go.sum) pins each program. Builds are stored in the cache
directory of the user, one folder for each program and version, and are reused.
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
    """A program cannot be built; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    module: Path  # the folder of the wrapper module
    package: str  # the package to build
    version: str
    linked: str = ""  # further linker flags


def cache_of(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME") or str(Path.home())
    cache = environment.get("XDG_CACHE_HOME", "")
    root = Path(cache) if os.path.isabs(cache) else Path(home) / ".cache"
    return root / "datum-compute"


def path_of(program: Program, environment: Mapping[str, str]) -> Path:
    return cache_of(environment) / f"{program.name}-{program.version}" / program.name


def built(program: Program, environment: Mapping[str, str]) -> Path:
    """Return the path of the program. Build it if it is missing."""
    target = path_of(program, environment)
    if not target.exists():
        go = shutil.which("go", path=environment.get("PATH", ""))
        if go is None:
            raise CannotBuild(f"cannot build {program.name}: go is not installed")
        _build(program, target, go, environment)
    return target


def link(program: Path, name: Path) -> None:
    """Create or replace a link to the program atomically."""
    partial = name.with_suffix(f".{os.getpid()}")
    partial.symlink_to(program)
    partial.replace(name)


def _build(program: Program, target: Path, go: str, environment: Mapping[str, str]) -> None:
    """Build the program atomically. A lock prevents concurrent builds of the same program."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as folder:
        if target.exists():
            return
        sys.stderr.write(
            f"building {program.name} {program.version} with {go}; this takes some minutes, once\n"
        )
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
