"""The one question the command line asks: yes or no, on stderr, with no as the safe answer."""

from __future__ import annotations

import signal

from datum_compute.cli.context import Surroundings
from datum_compute.cli.errors import DeclinedError, UsageError
from datum_compute.cli.output import cleaned


def confirm(surroundings: Surroundings, question: str) -> None:
    """Return on yes; raise on no, on end of input, and where nobody can answer."""
    if not surroundings.may_ask:
        raise UsageError(
            "This needs a yes, and there is no terminal to ask on.",
            "Pass -y to go ahead without asking.",
        )
    while True:
        surroundings.stderr.write(f"{cleaned(question)} [y/N] ")
        surroundings.stderr.flush()
        line = _read_line(surroundings)
        match line.strip().lower():
            case "y" | "yes":
                return
            case "n" | "no":
                raise DeclinedError("Declined; nothing was changed.")
            case "" if not line:
                surroundings.stderr.write("\n")
                raise DeclinedError("No answer; nothing was changed.")
            case "":
                raise DeclinedError("Declined; nothing was changed.")
            case _:
                surroundings.stderr.write("Please answer yes or no.\n")


def _read_line(surroundings: Surroundings) -> str:
    """A line, or KeyboardInterrupt at Ctrl-C.

    The event loop turns Ctrl-C into the cancellation of a task, which would wait for the line.
    """
    replaced = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return surroundings.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, replaced)
