"""Programs whose reader has gone end without a word."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import redirect_stdout

import pytest

from datum_compute.telemetry.broken_pipe import READER_GONE, quiet_when_unread


def unread(main: Callable[[], int]) -> int:
    """The exit code when standard output is a pipe that nobody reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe, redirect_stdout(pipe):
        code = main()
        pipe.flush()  # as Python does at its end
    return code


@pytest.mark.parametrize("size", [1, 100_000])
def test_whoever_writes_to_nobody_ends_as_by_sigpipe(size: int) -> None:
    @quiet_when_unread
    def main() -> int:
        print("x" * size)
        return 0

    assert unread(main) == READER_GONE


def test_help_that_leaves_by_an_exception_is_no_exception() -> None:
    @quiet_when_unread
    def main() -> int:
        print("usage")
        raise SystemExit(0)

    assert unread(main) == READER_GONE


def test_other_endings_stay_as_they_are() -> None:
    @quiet_when_unread
    def main(code: int) -> int:
        if code < 0:
            raise SystemExit(-code)
        return code

    assert main(3) == 3
    with pytest.raises(SystemExit, match="4"):
        main(-4)
