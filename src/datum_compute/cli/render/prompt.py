"""Every question the command line asks, on stderr, with no as the safe answer.

Only what takes something away asks: destroy, and a deploy that removes something; a deploy asks on
a terminal. Where nobody can answer, ``-y`` or ``--confirm NAME`` has to be on the command line.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import DeclinedError, UsageError
from datum_compute.cli.render.output import cleaned

NO_TERMINAL = "This needs a yes, and there is no terminal to ask on."


def confirm(environment: CliEnvironment, question: str, *, confirm_flag: str = "") -> None:
    """Return on yes; raise on no, on end of input, and where nobody can answer."""
    if not environment.may_ask:
        instead = f"-y or {confirm_flag}" if confirm_flag else "-y"
        raise UsageError(NO_TERMINAL, f"Pass {instead} to go ahead without asking.")
    while True:
        match asked(environment, f"{question} [y/N] ").lower():
            case "y" | "yes":
                return
            case "n" | "no" | "":
                raise DeclinedError("Declined; nothing was changed.")
            case _:
                environment.stderr.write("Please answer yes or no.\n")


def confirm_name(environment: CliEnvironment, question: str, name: str) -> None:
    """As ``confirm``, for what would hurt most: only the name itself is a yes."""
    if not environment.may_ask:
        hint = f"Pass --confirm={name} (or -y) to go ahead without asking."
        raise UsageError(NO_TERMINAL, hint)
    if asked(environment, f"{question} Type its name to go ahead: ") != name:
        raise DeclinedError("That is not its name; nothing was changed.")


def check_confirmation(confirmed: str | None, name: str) -> bool:
    """Whether ``--confirm`` was given; it must name what would be changed."""
    if confirmed is not None and confirmed != name:
        raise UsageError(f"--confirm says {confirmed!r}, but this is about {name!r}.")
    return confirmed is not None


def ask(
    environment: CliEnvironment,
    question: str,
    default: str = "",
    problem: Callable[[str], str] = lambda _answer: "",
) -> str:
    """A text; asked again while ``problem`` finds one with the answer."""
    while True:
        shown = f"{question} [{default}]: " if default else f"{question}: "
        answer = asked(environment, shown) or default
        wrong = problem(answer) if answer else "Please answer, or leave with Ctrl-C."
        if not wrong:
            return answer
        environment.stderr.write(cleaned(wrong) + "\n")


def asked(environment: CliEnvironment, question: str) -> str:
    """The answer without the space around it; the end of input is a no."""
    environment.stderr.write(cleaned(question))
    environment.stderr.flush()
    line = _read_line(environment)
    if not line:
        environment.stderr.write("\n")
        raise DeclinedError("No answer; nothing was changed.")
    return line.strip()


def _read_line(environment: CliEnvironment) -> str:
    """A line, or KeyboardInterrupt at Ctrl-C.

    The event loop turns Ctrl-C into the cancellation of a task, which would wait for the line.
    """
    replaced = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return environment.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, replaced)
