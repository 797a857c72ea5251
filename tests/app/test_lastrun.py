"""What a run leaves for the next one is a hint, and never an obstacle."""

from __future__ import annotations

from pathlib import Path

import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.app.state_directory import (
    remember_cells,
    remember_port,
    remembered_cells,
    remembered_port,
)

CELLS = (cell_plane("dfw"), cell_plane("ams"))


def test_what_was_remembered_is_known_again(tmp_path: Path) -> None:
    remember_port(tmp_path, 4711)
    remember_cells(tmp_path, CELLS)
    assert remembered_port(tmp_path) == 4711
    assert remembered_cells(tmp_path) == CELLS


def test_nothing_is_written_when_nothing_changed(tmp_path: Path) -> None:
    remember_cells(tmp_path, CELLS)
    before = (tmp_path / "cells.json").stat().st_ino
    remember_cells(tmp_path, CELLS)
    assert (tmp_path / "cells.json").stat().st_ino == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"port": "x"}', '{"port": 70000}', '{"cells": ["a/b"]}', '{"cells": 1}'],
)
def test_what_cannot_be_read_is_as_good_as_nothing(tmp_path: Path, text: str) -> None:
    for name in ("port.json", "cells.json"):
        (tmp_path / name).write_text(text)
    assert remembered_port(tmp_path) == 0
    assert remembered_cells(tmp_path) == ()
