"""Output that nobody reads to its end, as in ``... | head -1``.

A program whose reader has gone ends without a word, with the code that a shell gives to one that
was ended by SIGPIPE. What is still in the buffer is written here and not when Python ends, which
would complain.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")

READER_GONE = 141


def quiet_when_unread(main: Callable[P, int]) -> Callable[P, int]:
    """For the ``main`` of a program."""

    @wraps(main)
    def ended(*arguments: P.args, **named: P.kwargs) -> int:
        try:
            try:
                return main(*arguments, **named)
            finally:  # also after --help, which leaves by an exception
                sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return READER_GONE

    return ended
