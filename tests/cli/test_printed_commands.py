"""Every command that is printed for the user acts on the target that the flags selected.

``CliRunner.run`` checks this for each command that any test runs. The tests here run commands that
print other commands with all the flags, and check that no other code builds a command.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import datum_compute.cli
from datum_compute.cli.groups import compute
from datum_compute.cli.options import with_given_flags
from tests.cli.golden import READS, golden_runner
from tests.cli.runner import CliRunner, advised, check_flags_are_repeated

CLI = Path(datum_compute.cli.__file__).parent
PROGRAM = "datumctl compute"
# The functions that put the program before the words of a command, and what is not a command.
MAY_USE_PROGRAM = {"environment.py", "entry.py", "commands/completion.py"}


def flags(cli: CliRunner) -> tuple[str, ...]:
    kubeconfig = cli.home / ".local/state/datum-compute/kubeconfig"
    return (
        *("--project=default", "-n", "default", f"--kubeconfig={kubeconfig}"),
        "--request-timeout=30s",
    )


def printed_commands(cli: CliRunner) -> list[list[str]]:
    lines = [*cli.out.splitlines(), *cli.err.splitlines()]
    return [words for line in lines for words in advised(line, PROGRAM)]


@pytest.mark.parametrize("name", [*READS])
def test_reads_print_commands_with_the_given_flags(tmp_path: Path, name: str) -> None:
    cli = golden_runner(tmp_path)
    for form in ("table", "json"):
        arguments = list(READS[name])
        cli.run(*arguments, *flags(cli), "-o", form)  # checks the flags
        if name in ("doctor", "explain") or (form, name) == ("table", "status"):
            assert printed_commands(cli), cli.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("exec", "web-default-dfw-0", "--", "ls"),
        ("logs", "web"),
        ("deploy", "web", "--image=web:1", "--max=0"),
        ("deploy", "new", "--image=web:1", "--city=DFW", "--no-wait", "--min=20", "-y"),
        ("deploy", "web", "--image=web:1", "--city=NRT", "-y"),
        ("deploy",),
    ],
)
def test_errors_print_commands_with_the_given_flags(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    cli = golden_runner(tmp_path)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    assert cli.run(*arguments[:end], *flags(cli), *arguments[end:]) != 0
    assert printed_commands(cli), cli.err


@pytest.mark.usefixtures("local_platform")
def test_a_change_and_its_undo_print_commands_with_the_given_flags(cli: CliRunner) -> None:
    for arguments in (
        ("deploy", "web", "--image=web:1", "--city=DFW", "--no-wait", "-y"),
        ("deploy", "web", "--image=web:2", "-y"),
        ("deploy", "web", "--image=web:3", "--plan-out=plan.json"),
        ("rollout", "pause", "web"),
        ("status", "web"),
        ("rollout", "resume", "web"),
        ("rollout", "undo", "web", "-y"),
        ("scale", "web", "--min=2", "--no-wait"),
        ("restart", "web", "--no-wait"),
        ("open", "web"),
        ("destroy", "web", "-y", "--no-wait"),
    ):
        cli.run(*arguments, *flags(cli))


@pytest.mark.parametrize(
    "arguments",
    [
        ("status",),
        ("logs",),
        ("chaos", "cut", "dfw"),
        ("export", "--to=prod"),
    ],
)
def test_local_commands_repeat_the_state_directory(
    cli: CliRunner, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    state_dir = (tmp_path / "my state").resolve()
    assert cli.run("local", *arguments, f"--state-dir={state_dir}") != 0
    assert printed_commands(cli), cli.err
    for words in printed_commands(cli):
        assert f"--state-dir={state_dir}" in words, cli.err


def test_flags_are_inserted_before_the_command_of_exec_and_are_not_doubled() -> None:
    with compute.make_context("", ["--project=shop", "-n", "web", "status"]):
        assert with_given_flags(["exec", "web-0", "--", "ls"]) == [
            *("exec", "web-0", "--project=shop", "--namespace=web", "--", "ls")
        ]
        assert with_given_flags(["status", "--namespace=other"]) == [
            *("status", "--namespace=other", "--project=shop")
        ]
        assert with_given_flags(["local", "up"]) == ["local", "up"]
    assert click.get_current_context(silent=True) is None
    assert with_given_flags(["status"]) == ["status"]


def test_a_command_without_the_flags_is_found() -> None:
    arguments = ("status", "-n", "shop")
    check_flags_are_repeated(f"See: {PROGRAM} explain web --namespace=shop", arguments, PROGRAM)
    with pytest.raises(AssertionError):
        check_flags_are_repeated(f"See: {PROGRAM} explain web", arguments, PROGRAM)


def test_only_one_function_builds_commands() -> None:
    """A literal program name appears in examples of the help only."""
    for file in sorted(CLI.rglob("*.py")):
        name, text = str(file.relative_to(CLI)), file.read_text()
        if name not in MAY_USE_PROGRAM:
            assert not re.search(r"\.program\b", text), f"{name}: use environment.command(...)"
        without_help = re.sub(r'"""(?s:.*?)"""', "", text)
        if name != "environment.py":
            assert PROGRAM not in without_help, f"{name}: use environment.command(...)"
