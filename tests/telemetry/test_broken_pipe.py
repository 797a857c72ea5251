"""Broken pipes: programs exit with the code of SIGPIPE and without an error message."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from datum_compute.telemetry.broken_pipe import BROKEN_PIPE_EXIT_CODE, exit_on_broken_pipe


def run_with_broken_pipe(main: Callable[[], int]) -> int:
    """Return the exit code of ``main`` when stdout is a closed pipe."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as pipe, redirect_stdout(pipe):
        code = main()
        pipe.flush()  # as Python does at exit
    return code


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_program_exits_as_after_sigpipe_when_its_output_is_closed(size: int) -> None:
    @exit_on_broken_pipe
    def main() -> int:
        print("x" * size)
        return 0

    assert run_with_broken_pipe(main) == BROKEN_PIPE_EXIT_CODE


def test_a_program_that_raises_system_exit_has_the_same_exit_code() -> None:
    @exit_on_broken_pipe
    def main() -> int:
        print("usage")
        raise SystemExit(0)

    assert run_with_broken_pipe(main) == BROKEN_PIPE_EXIT_CODE


def test_other_exit_codes_are_unchanged() -> None:
    @exit_on_broken_pipe
    def main(code: int) -> int:
        if code < 0:
            raise SystemExit(-code)
        return code

    assert main(3) == 3
    with pytest.raises(SystemExit, match="4"):
        main(-4)
