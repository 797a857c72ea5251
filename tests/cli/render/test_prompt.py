"""The confirmation prompt: only a clear yes confirms."""

from __future__ import annotations

import asyncio
import io
import signal

import pytest

from datum_compute.cli.errors import DeclinedError, UsageError
from datum_compute.cli.render.prompt import confirm
from tests.cli.runner import CliRunner, Terminal


def ask(cli: CliRunner, typed: str) -> str:
    """What is printed while the question is answered with ``typed``."""
    stderr = Terminal()
    confirm(cli.environment(Terminal(typed), Terminal(), stderr), "Go?")
    return stderr.getvalue()


@pytest.mark.parametrize("answer", ["y\n", "Y\n", "yes\n", " YES \n", "maybe\ny\n"])
def test_yes_confirms(cli: CliRunner, answer: str) -> None:
    assert ask(cli, answer).startswith("Go? [y/N] ")


@pytest.mark.parametrize("answer", ["n\n", "no\n", "NO\n", "\n", "", "what\n"])
def test_other_answers_decline(cli: CliRunner, answer: str) -> None:
    with pytest.raises(DeclinedError) as caught:
        ask(cli, answer)
    assert caught.value.exit_code == 9


def test_the_prompt_is_repeated_after_an_unclear_answer(cli: CliRunner) -> None:
    assert ask(cli, "hm\nyes\n").count("[y/N]") == 2


@pytest.mark.parametrize("silent", ["stdin", "stderr"])
def test_without_a_terminal_the_error_names_the_flag(cli: CliRunner, silent: str) -> None:
    streams: dict[str, io.StringIO] = {
        "stdin": Terminal("y\n"),
        "stdout": Terminal(),
        "stderr": Terminal(),
    }
    streams[silent] = io.StringIO("y\n")
    with pytest.raises(UsageError) as caught:
        confirm(cli.environment(**streams), "Go?")
    assert caught.value.exit_code == 2
    assert "-y" in caught.value.hint


def test_ctrl_c_ends_the_prompt(cli: CliRunner) -> None:
    class Interrupted(Terminal):
        def readline(self, _size: int | None = -1, /) -> str:  # type: ignore[override]
            signal.raise_signal(signal.SIGINT)
            return "y\n"

    async def ask_in_a_loop() -> None:
        confirm(cli.environment(Interrupted(), Terminal(), Terminal()), "Go?")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(ask_in_a_loop())
