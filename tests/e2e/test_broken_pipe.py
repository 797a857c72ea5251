"""Programs exit without an error message when the reader of their output is closed (``| head``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]

PROGRAMS = {
    "datumctl": ("-m", "datumctl", "version"),
    "command line": ("-m", "datum_compute", "deploy", "--help"),
    "manifest": ("-m", "datum_compute", "--plugin-manifest"),
    "compute-server": ("-m", "datum_compute.app.local_server", "--help"),
    "compute-cell": ("-m", "datum_compute.app.cell_server", "--help"),
    "compute-manager": ("-c", "from datum_compute.app.manager import main; main(['--help'])"),
    "simulator": ("-m", "testkit.sim", "--help"),
    "custom world": ("-m", "tests.examples.ordered_world", "--seeds", "1"),
}


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_with_a_closed_output_pipe_prints_no_error(name: str, unbuffered: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "wb") as pipe:
        done = subprocess.run(
            [sys.executable, *PROGRAMS[name]],
            stdout=pipe,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=60,
            check=False,
        )
    assert done.stderr == b""
    assert done.returncode in (0, 141)
