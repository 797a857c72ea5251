"""What the last run of a state directory chose, so that the next one need not be told.

Port and cells are hints: what cannot be read of them is as good as nothing. The driver is not: with
another one, what runs would be nobody's. A file is written only when it changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from datum_compute.api.meta.codec import DecodeError, decode_as, encode
from datum_compute.api.planes import PlaneName, cell_plane, member_name
from datum_compute.app.state_directory import StateError, write_private

DRIVERS = ("containers", "simulated")


def remembered_port(state: Path) -> int:
    """The port it listened on; 0 if nobody knows."""
    try:
        port = decode_as((state / "port.json").read_bytes(), dict[str, int]).get("port", 0)
    except (OSError, DecodeError):
        return 0
    return port if 0 < port < 65536 else 0


def remember_port(state: Path, port: int) -> None:
    if remembered_port(state) != port:
        write_private(state / "port.json", encode({"port": port}))


def remembered_driver(state: Path) -> tuple[str, str]:
    """What ran its instances, and the socket of its engine; empty if there was no run yet."""
    path = state / "driver.json"
    try:
        found = decode_as(path.read_bytes(), dict[str, str])
        if found.get("driver") not in DRIVERS:
            raise DecodeError(f"it names none of {', '.join(DRIVERS)}")
    except FileNotFoundError:
        return "", ""
    except (OSError, DecodeError) as error:
        raise StateError(
            f"{path} is damaged ({error}). It says what runs the instances: say it with --driver "
            "containers or --driver simulated, as it was"
        ) from error
    return found["driver"], found.get("engine", "")


def remember_driver(state: Path, driver: str, engine: str) -> None:
    path, content = state / "driver.json", encode({"driver": driver, "engine": engine})
    if not path.is_file() or path.read_bytes() != content:
        write_private(path, content)


def remembered_cells(state: Path) -> tuple[PlaneName, ...]:
    """The cells it had; none if nobody knows."""
    try:
        names = decode_as((state / "cells.json").read_bytes(), dict[str, list[str]])
        return tuple(cell_plane(name) for name in dict.fromkeys(names.get("cells", [])))
    except (OSError, DecodeError, ValueError):
        return ()


def remember_cells(state: Path, cells: Sequence[PlaneName]) -> None:
    if remembered_cells(state) != tuple(cells):
        names = [member_name(cell) for cell in cells]
        write_private(state / "cells.json", encode({"cells": names}))
