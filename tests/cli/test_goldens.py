"""The exact output of every read command: formats, terminal, pipe and widths.

The files lie in ``golden/``; ``python -m tests.cli.golden`` rewrites them, for a reader of the
difference to judge.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.golden import CASES, GOLDEN, Case, golden_runner, render


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_output_equals_the_golden_file(case: Case, home: Path) -> None:
    expected = (GOLDEN / f"{case.name}.txt").read_text()
    assert render(golden_runner(home), case) == expected, "python -m tests.cli.golden"


@pytest.mark.parametrize("case", [c for c in CASES if c.columns], ids=lambda case: case.name)
def test_no_line_of_a_table_is_wider_than_the_terminal(case: Case) -> None:
    text = (GOLDEN / f"{case.name}.txt").read_text()
    _, _, tables = text.partition("\n\n") if case.name.startswith("status") else ("", "", text)
    assert all(len(line) <= case.columns for line in tables.splitlines()), case


def test_every_golden_file_belongs_to_a_case() -> None:
    assert {file.stem for file in GOLDEN.iterdir()} == {case.name for case in CASES}
