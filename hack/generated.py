"""Write generated files, or say which of them are stale."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


def stale_files(folder: Path, wanted: Mapping[str, str], *, owned: str = "") -> list[str]:
    """Names of files that are missing or differ, and those the ``owned`` pattern leaves over."""
    differing = {
        name
        for name, text in wanted.items()
        if not (folder / name).is_file() or (folder / name).read_text() != text
    }
    left_over = {path.name for path in folder.glob(owned)} - set(wanted) if owned else set()
    return sorted(differing | left_over)


def write_files(folder: Path, wanted: Mapping[str, str], *, owned: str = "") -> None:
    """Bring the folder up to date; what the ``owned`` pattern leaves over is removed."""
    for name in stale_files(folder, wanted, owned=owned):
        if name in wanted:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()


class Asked(NamedTuple):
    folder: Path
    check: bool


def asked() -> Asked:
    """What the command line says: ``[--check] FOLDER``."""
    parser = ArgumentParser()
    parser.add_argument("folder", type=Path, help="the files are written there")
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    given = parser.parse_args()
    return Asked(given.folder, given.check)


def main(wanted: Mapping[str, str], make_target: str, *, owned: str = "") -> int:
    folder, check = asked()
    return settle(folder, wanted, make_target, owned=owned, check=check)


def settle(
    folder: Path, wanted: Mapping[str, str], make_target: str, *, owned: str = "", check: bool
) -> int:
    """Write, or only say what is stale; the exit code."""
    if not check:
        write_files(folder, wanted, owned=owned)
        return 0
    stale = stale_files(folder, wanted, owned=owned)
    if stale:
        sys.stderr.write(f"{folder} is stale ({', '.join(stale)}); run: make {make_target}\n")
    return 1 if stale else 0
