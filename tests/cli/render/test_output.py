"""Text for terminals: ages, tables, and no control characters."""

from __future__ import annotations

import io
import json

import pytest
import yaml

from datum_compute.cli.render.output import (
    Output,
    build_output,
    render_age,
    render_count,
    render_json,
    render_table,
    strip_controls,
)
from tests.cli.runner import CliRunner, Terminal


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-5, "0s"),
        (0, "0s"),
        (59.9, "59s"),
        (60, "1m"),
        (3599, "59m"),
        (3600, "1h"),
        (86399, "23h"),
        (86400, "1d"),
        (400 * 86400, "400d"),
    ],
)
def test_ages_are_shown_in_one_unit(seconds: float, age: str) -> None:
    assert render_age(seconds) == age


def test_counts_are_grammatical() -> None:
    assert render_count(1, "city") == "1 city"
    assert render_count(2, "city") == "2 cities"
    assert render_count(0, "instance") == "0 instances"


def test_columns_are_aligned_and_lines_have_no_trailing_blanks() -> None:
    assert render_table(("A", "LONG"), [("first", 1), ("x", "y")]) == (
        "A       LONG\nfirst   1\nx       y"
    )


NASTY = "\x1b[31mred\x1b]0;title\x07\x9b2J\u202ereversed\x7f\r"


def test_control_characters_are_removed_and_line_breaks_kept() -> None:
    assert strip_controls(NASTY) == "[31mred]0;title2Jreversed"
    assert strip_controls("a\nb\tc") == "a\nb c"


def test_a_cell_stays_on_one_line() -> None:
    assert render_table(("A",), [("one\ntwo\x1b",)]) == "A\none two"


def test_json_keeps_values_and_escapes_control_characters() -> None:
    text = render_json({"message": NASTY})
    assert text.isascii()
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == {"message": NASTY}


def test_yaml_keeps_values_and_escapes_control_characters() -> None:
    stdout = io.StringIO()
    Output(stdout, io.StringIO()).yaml({"message": NASTY})
    assert stdout.getvalue().replace("\n", "").isprintable()
    assert yaml.safe_load(stdout.getvalue()) == {"message": NASTY}


@pytest.mark.parametrize(
    ("is_terminal", "environ", "is_colored"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (False, {}, False),
    ],
)
def test_color_requires_a_terminal_and_no_no_color(
    cli: CliRunner, is_terminal: bool, environ: dict[str, str], is_colored: bool
) -> None:
    cli.environ = environ
    stream = Terminal if is_terminal else io.StringIO
    stdout, stderr = stream(), stream()
    output = build_output(cli.environment(stream(), stdout, stderr))
    output.data("fine", color="green")
    output.error("broken", "mend it")
    assert ("\x1b[" in stdout.getvalue()) == is_colored
    assert ("\x1b[" in stderr.getvalue()) == is_colored
