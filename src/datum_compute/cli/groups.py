"""The command group: knows the verbs by name and imports one only when it is called."""

from __future__ import annotations

import importlib
from difflib import get_close_matches

import click

from datum_compute.cli.commands import INSIDE, VERBS
from datum_compute.cli.options import accept_yes, connection_options

_BY_NAME = {verb.name: verb for verb in VERBS}


class LazyGroup(click.Group):
    """click asks a subclass for its commands; that is the one way to load them late."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb.name for verb in VERBS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = _BY_NAME.get(cmd_name)
        if verb is None:
            return None
        command: click.Command = importlib.import_module(verb.module).COMMAND
        accept_yes(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in _BY_NAME and not args[0].startswith("-"):
            close = get_close_matches(args[0], _BY_NAME, n=1)
            meant = f"{INSIDE[args[0]]} {args[0]}" if args[0] in INSIDE else ""
            meant = meant or (close[0] if close else "")
            guess = f" Did you mean {meant!r}?" if meant else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(verb.name, verb.summary) for verb in VERBS])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@connection_options
def compute() -> None:
    """Run containers in many cities.

    Start with 'local up', then 'deploy NAME --image=IMAGE --city=DFW'.
    """
