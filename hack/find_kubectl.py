"""A kubectl for the tests: ``python -m hack.find_kubectl`` prints where one is.

In this order: what KUBECTL names, the first on PATH that is new enough, one that was built before,
and one built now from ``hack/kubectl`` if there is Go. What is built lies outside of the tree, in
the user's cache directory, one folder for each release.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "kubectl"
OLDEST = (1, 32)
_ANSWER_S = 30
_BUILD_S = 1800


class NoKubectl(Exception):
    """There is none, and why."""


@lru_cache(maxsize=1)
def kubectl() -> str:
    """Looked for once in a process."""
    return find_kubectl(os.environ)


def find_kubectl(environment: Mapping[str, str]) -> str:
    named = environment.get("KUBECTL", "")
    if named:
        return _checked(named)
    for candidate in _on_path(environment.get("PATH", "")):
        if (version_of(candidate) or (0, 0)) >= OLDEST:
            return candidate
    built = cached_program(environment)
    if not built.exists():
        build(built, environment)
    return str(built)


def version_of(program: str) -> tuple[int, int] | None:
    """Major and minor, if the program runs and says so."""
    try:
        done = subprocess.run(
            [program, "version", "--client", "--output=json"],
            capture_output=True,
            timeout=_ANSWER_S,
            check=False,
        )
        told = str(json.loads(done.stdout)["clientVersion"]["gitVersion"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None
    found = re.match(r"v(\d+)\.(\d+)", told)
    return (int(found[1]), int(found[2])) if found else None


def cached_program(environment: Mapping[str, str]) -> Path:
    home = environment.get("HOME") or str(Path.home())
    cache = environment.get("XDG_CACHE_HOME", "")
    root = Path(cache) if os.path.isabs(cache) else Path(home) / ".cache"
    return root / "datum-compute" / f"kubectl-{pinned_version()}" / "kubectl"


def pinned_version() -> str:
    """The release of Kubernetes whose kubectl is built: library 0.N is release 1.N."""
    found = re.search(r"k8s\.io/kubectl v0\.(\S+)", (SOURCE / "go.mod").read_text())
    assert found is not None, "hack/kubectl/go.mod pins k8s.io/kubectl"
    return f"v1.{found[1]}"


def build(target: Path, environment: Mapping[str, str]) -> None:
    """Whole or not at all; two who want it at once build it once."""
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        oldest = ".".join(map(str, OLDEST))
        raise NoKubectl(
            f"no kubectl: KUBECTL is not set, PATH has none from {oldest} on, and there is no go "
            "to build one with"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with _alone(target.parent), tempfile.TemporaryDirectory(dir=target.parent) as folder:
        if target.exists():
            return
        sys.stderr.write(f"building kubectl {pinned_version()} with {go}; once, some minutes\n")
        made = Path(folder) / "kubectl"
        flags = f"-s -w -X k8s.io/component-base/version.gitVersion={pinned_version()}"
        done = subprocess.run(
            [go, "build", "-trimpath", "-mod=readonly", f"-ldflags={flags}", "-o", str(made), "."],
            cwd=SOURCE,
            env={**environment, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            timeout=_BUILD_S,
            check=False,
        )
        if done.returncode != 0:
            raise NoKubectl(f"no kubectl: building one failed: {done.stderr.strip()[-500:]}")
        made.replace(target)


def _checked(named: str) -> str:
    found = version_of(named)
    if found is None:
        raise NoKubectl(f"KUBECTL names {named}, which does not tell its version")
    if found < OLDEST:
        told, oldest = (".".join(map(str, version)) for version in (found, OLDEST))
        raise NoKubectl(f"KUBECTL names {named}, which is {told}; {oldest} or newer is needed")
    return named


def _on_path(path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, "kubectl")
        if os.path.isabs(folder) and os.access(candidate, os.X_OK):
            yield candidate


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        sys.stdout.write(kubectl() + "\n")
    except NoKubectl as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
