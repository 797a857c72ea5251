"""Run commands in tests: streams in memory, own variables, and a clock that does not advance."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import click

from datum_compute.cli.entry import run
from datum_compute.cli.environment import CliEnvironment, CliTimeouts
from datum_compute.cli.groups import compute
from datum_compute.client.auth.kubeconfig import Connection
from datum_compute.client.transport.interface import Transport

NOW = 1_800_000_000.0
TARGET_FLAGS = (
    *("--project", "--context", "--kubeconfig", "--namespace", "--request-timeout"),
    "--state-dir",
)


class Terminal(io.StringIO):
    """A stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def no_transport(connection: Connection) -> AbstractAsyncContextManager[Transport]:
    raise AssertionError(f"nothing should be sent, but {connection.server} was asked for")


@dataclass
class CliRunner:
    """Where a test sits: what it types goes in, what the commands print can be read."""

    home: Path
    typed: str = ""
    is_terminal: bool = False
    program: str = "datumctl compute"
    environ: Mapping[str, str] = field(default_factory=dict)
    open_transport: object = no_transport
    columns: int = 80
    timeouts: CliTimeouts = field(default_factory=CliTimeouts)
    opened: list[str] = field(default_factory=list)
    out: str = ""
    err: str = ""

    def run(self, *arguments: str) -> int:
        """The exit code; ``out`` and ``err`` are what this run printed."""
        stream = Terminal if self.is_terminal else io.StringIO
        environment = self.environment(stream(self.typed), stream(), stream())
        code = run(arguments, environment)
        self.out = environment.stdout.getvalue()  # type: ignore[attr-defined]
        self.err = environment.stderr.getvalue()  # type: ignore[attr-defined]
        printed = (self.err,) if "--help" in arguments else (self.err, self.out)
        for text in printed:
            check_advice(text, self.program)
            check_flags_are_repeated(text, arguments, self.program)
        return code

    def environment(
        self, stdin: io.StringIO, stdout: io.StringIO, stderr: io.StringIO
    ) -> CliEnvironment:
        return CliEnvironment(
            program=self.program,
            environ=self.environ,
            home=self.home,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            now=lambda: NOW,
            open_transport=self.open_transport,  # type: ignore[arg-type]
            cwd=self.home,
            columns=lambda: self.columns,
            timeouts=self.timeouts,
            open_browser=self._open,
        )

    def _open(self, address: str) -> bool:
        self.opened.append(address)
        return True


def quiet_environment() -> CliEnvironment:
    """For what prints nothing by itself."""
    return CliRunner(Path("/")).environment(*(io.StringIO() for _ in range(3)))


def check_advice(text: str, program: str) -> None:
    """Every command line that we print for the user must be one that we take."""
    for line in text.splitlines():
        if not line.startswith("Usage:"):
            for words in advised(line, program):
                _parse(compute, words, None)


def check_flags_are_repeated(text: str, arguments: Sequence[str], program: str) -> None:
    """Check that printed commands act on the target that the flags of the command selected."""
    given = given_flags(arguments)
    for line in text.splitlines():
        if line.startswith("Usage:"):
            continue
        for words in advised(line, program):
            if "--help" in words or words[0] in ("version", "completion"):
                continue
            is_local = words[0] == "local"
            expected = {flag for flag in given if flag.startswith("--state-dir=") == is_local}
            assert expected <= given_flags(words), f"{line}\nlacks {expected - given_flags(words)}"


def given_flags(words: Sequence[str]) -> set[str]:
    """Return the flags that select a target, in the form ``--flag=value``."""
    found = set()
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == "--":
            break
        flag, equals, value = word.replace("-n=", "--namespace=").partition("=")
        flag = "--namespace" if flag == "-n" else flag
        if flag in TARGET_FLAGS:
            found.add(f"{flag}={value if equals else after}")
    return found


def advised(line: str, program: str) -> list[list[str]]:
    """The words of each command in a line of text, or in the texts of a line of JSON."""
    found = []
    for text in _texts(line):
        before, *after = text.split(f"{program} ")
        for rest in after:
            command = rest.partition("\n")[0].partition("  ")[0]
            if before.endswith("'"):
                command = command.partition("'")[0]
            found.append(shlex.split(command.rstrip(".?")))
            before = rest
    return found


def _texts(line: str) -> list[str]:
    if not line.startswith('{"'):
        # May be a line of JSON on many lines.
        return [line.rstrip(",").rstrip('"') if line.lstrip().startswith('"') else line]
    return _strings(json.loads(line))


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for item in inner for text in _strings(item)]


def _parse(command: click.Command, arguments: list[str], parent: click.Context | None) -> None:
    if "--help" in arguments:
        return
    context = command.make_context("", list(arguments), parent, obj=quiet_environment())
    if isinstance(command, click.Group):
        left = [*context._protected_args, *context.args]  # as the group itself has read them
        _, inner, rest = command.resolve_command(context, left)
        assert inner is not None
        _parse(inner, rest, context)


def deployed(
    cli: CliRunner, *cities: str, name: str = "web", image: str = "reg.test/x/web:1"
) -> None:
    code = cli.run("deploy", name, f"--image={image}", f"--city={','.join(cities)}", "-y")
    assert code == 0, cli.err


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def deploy_three_revisions(cli: CliRunner) -> None:
    """Deploy web with two images, then scale it. The value of a variable differs as well."""
    deploy = ("deploy", "web", "-y")
    assert cli.run(*deploy, "--image=web:1", "--city=DFW", "--env=KEY=hunter2") == 0
    assert cli.run(*deploy, "--image=web:2", "--env=KEY=hunter3") == 0
    assert cli.run("scale", "web", "--min=3") == 0
    assert cli.run("rollout", "web") == 0
