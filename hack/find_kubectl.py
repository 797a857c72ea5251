"""Find a kubectl for the tests: ``python -m hack.find_kubectl`` prints its path.

Candidates in order: the program in KUBECTL, the first one on PATH that is new enough, a previous
build, and a new build from ``hack/kubectl`` if Go is installed. Builds are stored in the cache
directory of the user, one folder for each release.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from hack.gobuild import CannotBuild, Program, built, path_of

SOURCE = Path(__file__).resolve().parent / "kubectl"
OLDEST = (1, 32)
_ANSWER_S = 30


class NoKubectl(Exception):
    """No kubectl was found; the message contains the reason."""


@lru_cache(maxsize=1)
def kubectl() -> str:
    """Return the path of kubectl, searched once per process."""
    return find_kubectl(os.environ)


def find_kubectl(environment: Mapping[str, str]) -> str:
    named = environment.get("KUBECTL", "")
    if named:
        return _checked(named)
    for candidate in _on_path(environment.get("PATH", "")):
        if (version_of(candidate) or (0, 0)) >= OLDEST:
            return candidate
    try:
        return str(built(_program(), environment))
    except CannotBuild as error:
        oldest = ".".join(map(str, OLDEST))
        raise NoKubectl(
            f"no kubectl: KUBECTL is not set, PATH has none from {oldest} on, and {error}"
        ) from error


def version_of(program: str) -> tuple[int, int] | None:
    """Return major and minor version; None if the program does not run or print them."""
    try:
        done = subprocess.run(
            [program, "version", "--client", "--output=json"],
            capture_output=True,
            timeout=_ANSWER_S,
            check=False,
        )
        version = str(json.loads(done.stdout)["clientVersion"]["gitVersion"])
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError):
        return None
    found = re.match(r"v(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def cached_program(environment: Mapping[str, str]) -> Path:
    return path_of(_program(), environment)


def _program() -> Program:
    version = pinned_version()
    linked = f"-X k8s.io/component-base/version.gitVersion={version}"
    return Program("kubectl", SOURCE, ".", version, linked)


def pinned_version() -> str:
    """Return the Kubernetes release of the build: library 0.N is release 1.N."""
    found = re.search(r"k8s\.io/kubectl v0\.(\S+)", (SOURCE / "go.mod").read_text())
    assert found is not None, "hack/kubectl/go.mod pins k8s.io/kubectl"
    return f"v1.{found[1]}"


def _checked(named: str) -> str:
    found = version_of(named)
    if found is None:
        raise NoKubectl(f"KUBECTL is {named}, which does not print its version")
    if found < OLDEST:
        actual, oldest = (".".join(map(str, version)) for version in (found, OLDEST))
        raise NoKubectl(f"KUBECTL is {named}, version {actual}; {oldest} or newer is required")
    return named


def _on_path(path: str) -> Iterator[str]:
    for folder in path.split(os.pathsep):
        candidate = os.path.join(folder, "kubectl")
        if os.path.isabs(folder) and os.access(candidate, os.X_OK):
            yield candidate


def main() -> int:
    try:
        sys.stdout.write(kubectl() + "\n")
    except NoKubectl as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
