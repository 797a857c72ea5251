"""Surroundings for tests: streams in memory, an environment of one's own, a clock that stands."""

from __future__ import annotations

import io
import shlex
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import click

from datum_compute.cli.context import Surroundings
from datum_compute.cli.entry import run
from datum_compute.cli.group import compute
from datum_compute.client.kubeconfig import Connection
from datum_compute.client.transport import Transport

NOW = 1_800_000_000.0


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def no_transport(connection: Connection) -> AbstractAsyncContextManager[Transport]:
    raise AssertionError(f"nothing should be sent, but {connection.server} was asked for")


@dataclass
class Desk:
    """Where a test sits: what it types goes in, what the commands print can be read."""

    home: Path
    typed: str = ""
    is_terminal: bool = False
    program: str = "datumctl compute"
    environ: Mapping[str, str] = field(default_factory=dict)
    open_transport: object = no_transport
    out: str = ""
    err: str = ""

    def run(self, *arguments: str) -> int:
        """The exit code; ``out`` and ``err`` are what this run printed."""
        stream = Terminal if self.is_terminal else io.StringIO
        surroundings = self.surroundings(stream(self.typed), stream(), stream())
        code = run(arguments, surroundings)
        self.out = surroundings.stdout.getvalue()  # type: ignore[attr-defined]
        self.err = surroundings.stderr.getvalue()  # type: ignore[attr-defined]
        for line in self.err.splitlines():
            check_advice(line, self.program)
        return code

    def surroundings(
        self, stdin: io.StringIO, stdout: io.StringIO, stderr: io.StringIO
    ) -> Surroundings:
        return Surroundings(
            program=self.program,
            environ=self.environ,
            home=self.home,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            now=lambda: NOW,
            open_transport=self.open_transport,  # type: ignore[arg-type]
        )


def check_advice(line: str, program: str) -> None:
    """A command line that we print for the user must be one that we take."""
    _, found, rest = line.partition(f"{program} ")
    if found and not line.startswith("Usage:"):
        _parse(compute, shlex.split(rest.rstrip('",')), None)  # may stand in JSON


def _parse(command: click.Command, arguments: list[str], parent: click.Context | None) -> None:
    if "--help" in arguments:
        return
    surroundings = Desk(Path("/")).surroundings(*(io.StringIO() for _ in range(3)))
    context = command.make_context("", list(arguments), parent, obj=surroundings)
    if isinstance(command, click.Group):
        _, inner, rest = command.resolve_command(context, arguments)
        assert inner is not None
        _parse(inner, rest, context)
