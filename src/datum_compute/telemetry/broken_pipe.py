"""Broken pipes: a program whose output is not read to the end, as in ``... | head -1``.

It exits without an error message, with the code that shells report for SIGPIPE. The output buffer
is flushed here, because Python would print an error if the flush at exit failed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")

BROKEN_PIPE_EXIT_CODE = 141


def exit_on_broken_pipe(main: Callable[P, int]) -> Callable[P, int]:
    """Decorate the ``main`` of a program: exit with 141 if stdout is closed."""

    @wraps(main)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            try:
                return main(*args, **kwargs)
            finally:  # also after --help, which raises SystemExit
                sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE_EXIT_CODE

    return run
