"""Write generated files, or say which of them are stale."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path


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
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale_files(folder, wanted, owned=owned):
        if name in wanted:
            (folder / name).write_text(wanted[name])
        else:
            (folder / name).unlink()


def main(wanted: Mapping[str, str], make_target: str, *, owned: str = "") -> int:
    """``[--check] FOLDER``: write, or only say what is stale."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--check"]
    folder = Path(arguments[0])
    if "--check" not in sys.argv:
        write_files(folder, wanted, owned=owned)
        return 0
    stale = stale_files(folder, wanted, owned=owned)
    if stale:
        sys.stderr.write(f"{folder} is stale ({', '.join(stale)}); run: make {make_target}\n")
    return 1 if stale else 0
