"""Prompts on stderr, with no as the default.

Commands that delete or remove something require confirmation. Without a terminal, they fail unless
``-y`` or ``--confirm NAME`` is given.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import DeclinedError, UsageError
from datum_compute.cli.render.output import strip_controls

NO_TERMINAL = "Confirmation required, but stdin is not a terminal."


def confirm(environment: CliEnvironment, question: str, *, confirm_flag: str = "") -> None:
    """Return after yes. Raise after no, at the end of input, and without a terminal."""
    if not environment.may_ask:
        instead = f"-y or {confirm_flag}" if confirm_flag else "-y"
        raise UsageError(NO_TERMINAL, f"Pass {instead} to skip the prompt.")
    while True:
        match read_answer(environment, f"{question} [y/N] ").lower():
            case "y" | "yes":
                return
            case "n" | "no" | "":
                raise DeclinedError("Declined; nothing was changed.")
            case _:
                environment.stderr.write("Enter y or n.\n")


def confirm_name(environment: CliEnvironment, question: str, name: str) -> None:
    """Require the name as confirmation, for a deletion that interrupts a service."""
    if not environment.may_ask:
        hint = f"Pass --confirm={name} or -y to skip the prompt."
        raise UsageError(NO_TERMINAL, hint)
    if read_answer(environment, f"{question} Type the name to confirm: ") != name:
        raise DeclinedError("The name does not match; nothing was changed.")


def check_confirmation(confirmed: str | None, name: str) -> bool:
    """Return whether ``--confirm`` was given. Raise if it names another workload."""
    if confirmed is not None and confirmed != name:
        raise UsageError(f"--confirm={confirmed} does not match the workload {name!r}.")
    return confirmed is not None


def prompt_text(
    environment: CliEnvironment,
    question: str,
    default: str = "",
    problem: Callable[[str], str] = lambda _answer: "",
) -> str:
    """Prompt for a text, until ``problem`` returns no problem with the answer."""
    while True:
        shown = f"{question} [{default}]: " if default else f"{question}: "
        answer = read_answer(environment, shown) or default
        message = problem(answer) if answer else "A value is required. Press Ctrl-C to cancel."
        if not message:
            return answer
        environment.stderr.write(strip_controls(message) + "\n")


def read_answer(environment: CliEnvironment, question: str) -> str:
    """Return the answer without surrounding space. Raise DeclinedError at the end of input."""
    environment.stderr.write(strip_controls(question))
    environment.stderr.flush()
    line = _read_line(environment)
    if not line:
        environment.stderr.write("\n")
        raise DeclinedError("No answer; nothing was changed.")
    return line.strip()


def _read_line(environment: CliEnvironment) -> str:
    """Read a line, or raise KeyboardInterrupt at Ctrl-C.

    The event loop would turn Ctrl-C into the cancellation of a task, which waits for the line.
    """
    replaced = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return environment.stdin.readline()
    finally:
        signal.signal(signal.SIGINT, replaced)
