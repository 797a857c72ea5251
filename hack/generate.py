"""Write all generated files: ``python -m hack.generate``. ``--check`` only lists stale ones.

``GENERATORS`` lists the generated folders. To add one, write a function that returns the files of
the folder by name, and add a line.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hack.dashboard import dashboard_files
from hack.manifests import (
    crd_files,
    federation_files,
    kustomize_files,
    lists_of_manifests,
    single_cluster_files,
)
from hack.reference import reference_files
from hack.simulator_reference import simulator_files
from hack.webhook_manifests import webhook_files

ROOT = Path(__file__).resolve().parent.parent


class Generator(NamedTuple):
    """Files of a generator. Files that match ``owned`` and are not generated are deleted."""

    folder: str
    build: Callable[[], Mapping[str, str]]
    owned: str = ""


GENERATORS = (
    Generator("deploy/crds", crd_files, "*.yaml"),
    Generator("deploy/single-cluster", single_cluster_files, "*.yaml"),
    Generator("deploy/federation", federation_files, "**/*.yaml"),
    Generator("deploy/webhook", webhook_files, "*.yaml"),
    Generator("deploy/kustomize", kustomize_files),
    Generator("deploy", lists_of_manifests),
    Generator("deploy/monitoring", dashboard_files),
    Generator("docs/reference", reference_files, "*.md"),
    Generator("docs/internals", simulator_files),
)


def stale_files(folder: Path, wanted: Mapping[str, str], *, owned: str = "") -> list[str]:
    """Return the names of files that are missing, differ, or are no longer generated."""
    differing = {
        name
        for name, text in wanted.items()
        if not (folder / name).is_file() or (folder / name).read_text() != text
    }
    present = {str(path.relative_to(folder)) for path in folder.glob(owned)} if owned else set()
    return sorted(differing | (present - set(wanted)))


def write_files(folder: Path, wanted: Mapping[str, str], *, owned: str = "") -> None:
    """Write stale files, and delete those that are no longer generated."""
    for name in stale_files(folder, wanted, owned=owned):
        if name in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()


def find_stale(root: Path = ROOT) -> Iterator[str]:
    for folder, build, owned in GENERATORS:
        for name in stale_files(root / folder, build(), owned=owned):
            yield f"{folder}/{name}"


def write_all(root: Path = ROOT) -> None:
    for folder, build, owned in GENERATORS:
        write_files(root / folder, build(), owned=owned)


def main() -> int:
    parser = ArgumentParser(prog="python -m hack.generate", description="Write generated files.")
    parser.add_argument("--check", action="store_true", help="only list stale files")
    if not parser.parse_args().check:
        write_all()
        return 0
    stale = list(find_stale())
    if stale:
        sys.stderr.write(f"stale files: {', '.join(stale)}. Run: make crds docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
