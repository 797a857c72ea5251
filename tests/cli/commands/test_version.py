"""``version`` as text and as JSON."""

from __future__ import annotations

import json

from datum_compute import __version__
from tests.cli.runner import CliRunner


def test_the_version_is_printed_as_text_and_as_json(cli: CliRunner) -> None:
    assert cli.run("version") == 0
    assert cli.out == f"datum-compute {__version__}\n"
    assert cli.run("version", "-o", "json") == 0
    assert json.loads(cli.out) == {"version": __version__}
