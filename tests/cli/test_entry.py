"""The command line: help, usage errors, the plugin manifest, and start-up."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from datum_compute import __version__
from datum_compute.cli.groups import SUBCOMMAND_GROUPS, VERBS, compute
from datum_compute.cli.options import parse_duration
from tests.cli.runner import CliRunner


def test_every_verb_is_a_command_with_the_same_summary() -> None:
    for verb in VERBS:
        command = importlib.import_module(verb.module).COMMAND
        assert isinstance(command, click.Command)
        assert (command.name, command.short_help) == (verb.name, verb.summary)


@pytest.mark.parametrize("word", SUBCOMMAND_GROUPS)
def test_a_command_of_another_group_is_suggested(cli: CliRunner, word: str) -> None:
    verb = next(verb for verb in VERBS if verb.name == SUBCOMMAND_GROUPS[word])
    group = importlib.import_module(verb.module).COMMAND
    assert isinstance(group, click.Group)
    assert word in group.commands
    assert cli.run(word) == 2
    assert f"Did you mean '{SUBCOMMAND_GROUPS[word]} {word}'?" in cli.err


def test_help_lists_every_verb_without_importing_any() -> None:
    script = (
        "import sys; from datum_compute.cli import main; sys.argv = ['datumctl-compute']; main();"
        "heavy = {'aiohttp', 'asyncio', 'rich', 'yaml', 'msgspec'};"
        "heavy.add('datum_compute.cli.commands.deploy');"
        "sys.exit(', '.join(sorted(heavy & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: datumctl compute ")
    for verb in VERBS:
        assert f"  {verb.name} " in done.stdout
        assert verb.summary in done.stdout


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        ("/bin/datumctl-compute", "Usage: datumctl compute "),
        ("/bin/kubectl-compute", "Usage: kubectl compute "),
        ("__main__.py", "Usage: datumctl compute "),
    ],
)
def test_help_shows_the_program_name_that_was_used(called: str, shown: str) -> None:
    script = f"import sys; from datum_compute.cli import main; sys.argv = [{called!r}]; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.startswith(shown)


@pytest.mark.parametrize("arguments", [["--plugin-manifest"], ["nonsense", "--plugin-manifest"]])
def test_the_plugin_manifest_is_one_json_object(cli: CliRunner, arguments: list[str]) -> None:
    assert cli.run(*arguments) == 0
    assert json.loads(cli.out) == {
        "name": "compute",
        "version": __version__,
        "description": "Run containers in many cities",
        "api_version": 1,
        "min_api_version": 1,
    }


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["deplyo"], "there is no command 'deplyo'. Did you mean 'deploy'?", "compute --help"),
        (["xyz"], "there is no command 'xyz'", "compute --help"),
        (["deploy", "web", "--min=none"], "--min", "compute deploy --help"),
        (["status"], "missing argument 'NAME'", "compute status --help"),
        (["status", "web", "-o", "xml"], "'xml' is none of table", "compute status --help"),
        (["deploy", "web", "--timeout", "soon"], "'soon' is not a duration", "deploy --help"),
        (["workloads", "--request-timeout=0s"], "at least 1 second", "workloads list --help"),
        (["deploy"], "missing the name", "Example: datumctl compute deploy web"),
        (["deploy", "Web_1"], "'Web_1' is not a valid name", "lower-case"),
        (["deploy", "web", "--city=DFW,"], "empty city", "--city=DFW,ORD"),
        (["deploy", "web", "--env=1A=2"], "--env '1A=...' is not NAME=VALUE", "--env MODE=fast"),
        (["deploy", "web", "--env=A=1", "--env=A=2"], "--env sets 'A' twice", ""),
        (
            ["deploy", "-f", "x", "--image=i"],
            "--image cannot be combined with -f",
            "containers[].image",
        ),
        (["deploy", "-f", "x", "--city=DFW"], "--city cannot be combined with -f", "cityCodes"),
        (["deploy", "-f", "/nowhere/x"], "/nowhere/x cannot be read", ""),
        (["deploy", "web", "--min-replicas=2"], "Did you mean '--min'?", "deploy --help"),
        (["exec", "web-0", "apt-get", "-y"], "write -- before the command", "exec --help"),
    ],
)
def test_a_wrong_command_line_exits_2_with_message_and_hint(
    cli: CliRunner, arguments: list[str], message: str, hint: str
) -> None:
    assert cli.run(*arguments) == 2
    first, _, rest = cli.err.partition("\n")
    assert first.startswith("error: ")
    assert message in first
    assert hint in rest
    assert cli.out == ""


@pytest.mark.parametrize("words", [["rollout"], ["cell"], ["local"]])
def test_a_group_without_a_command_prints_its_help(
    cli: CliRunner, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert cli.run(*words) == 0
    printed = cli.out + capsys.readouterr().out  # click itself prints to stdout of the process
    assert printed.startswith(f"Usage: datumctl compute {words[0]} ")
    assert cli.err == ""


def leaves(command: click.Command) -> Iterator[click.Command]:
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from leaves(child)
    else:
        yield command


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_command_accepts_yes(verb: str) -> None:
    """Scripts pass it everywhere. Where nothing is confirmed, the help does not show it."""
    context = click.Context(compute)
    found = compute.get_command(context, verb)
    assert compute.get_command(context, verb) is found
    assert found is not None
    for command in leaves(found):
        options = [p for p in command.params if "--yes" in p.opts]
        assert [p.opts for p in options] == [["-y", "--yes"]], command.name


@pytest.mark.usefixtures("local_platform")
def test_yes_has_no_effect_where_nothing_is_confirmed(cli: CliRunner) -> None:
    assert cli.run("deploy", "web", "--image=web:1", "--city=DFW", "-y") == 0
    for arguments in (
        ("scale", "web", "--min=2"),
        ("restart", "web"),
        ("rollout", "status", "web"),
        ("rollout", "pause", "web"),
        ("rollout", "resume", "web"),
        ("status", "web"),
        ("workloads",),
        ("workloads", "list"),
    ):
        assert cli.run(*arguments, "-y") == 0, cli.err
        assert cli.run(*arguments, "--yes") == 0, cli.err
    assert cli.run("exec", "web-0", "-y", "--", "apt-get", "-y") == 3
    assert cli.run("scale", "--help") == 0
    assert "--yes" not in cli.out


def test_a_secret_value_is_not_repeated_in_an_error(cli: CliRunner) -> None:
    assert cli.run("deploy", "web", "--env=MY-KEY=s3cret") == 2
    assert "s3cret" not in cli.err


def test_errors_are_json_with_json_output(cli: CliRunner) -> None:
    assert cli.run("status", "web", "-o", "json") == 1
    error = json.loads(cli.err)["error"]
    assert (error["code"], error["reason"]) == (1, "Error")
    assert "local up" in error["hint"]
    assert cli.out == ""


def test_connection_options_may_stand_before_or_after_the_verb(cli: CliRunner) -> None:
    for arguments in (("--kubeconfig=/gone", "status", "w"), ("status", "w", "--kubeconfig=/gone")):
        assert cli.run(*arguments) == 1
        assert "/gone" in cli.err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("2h5s", 7205)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10x", "-5", "1.5h", "5m1h"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        parse_duration(text)


def test_a_closed_output_pipe_is_no_error() -> None:
    script = "import sys; from datum_compute.cli import main; sys.argv += ['version']; main()"
    command = f'"{sys.executable}" -c "{script}" | true'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""
