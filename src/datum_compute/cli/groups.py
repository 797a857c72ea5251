"""The command groups. The main group lists the verbs and imports the one that is used."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import click

from datum_compute.cli.options import accept_yes, connection_options

# --- The verbs: name, the module that ends in ``COMMAND = ...``, and a line of help
# The line is repeated here, so that ``--help`` imports no module of a verb.


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    module: str
    summary: str


VERBS: tuple[Verb, ...] = (
    Verb(
        "deploy",
        "datum_compute.cli.commands.deploy",
        "Create or update a workload and wait for it.",
    ),
    Verb("diff", "datum_compute.cli.commands.diff", "Show what a file would change."),
    Verb(
        "status",
        "datum_compute.cli.commands.status",
        "Show the health of a workload, city by city.",
    ),
    Verb(
        "destroy",
        "datum_compute.cli.commands.destroy",
        "Delete a workload and wait until it is gone.",
    ),
    Verb(
        "scale", "datum_compute.cli.commands.scale", "Change how many instances run in each city."
    ),
    Verb("restart", "datum_compute.cli.commands.restart", "Replace every instance, in order."),
    Verb("stop", "datum_compute.cli.commands.stop", "Stop a workload and keep its instances."),
    Verb("start", "datum_compute.cli.commands.start", "Start a stopped workload."),
    Verb(
        "rollout",
        "datum_compute.cli.commands.rollout",
        "Follow, undo, restart, pause or resume a rollout.",
    ),
    Verb("workloads", "datum_compute.cli.commands.workloads", "List or describe workloads."),
    Verb("instances", "datum_compute.cli.commands.instances", "List or describe instances."),
    Verb("logs", "datum_compute.cli.commands.logs", "Show the logs of a workload."),
    Verb("exec", "datum_compute.cli.commands.exec", "Run a command in an instance."),
    Verb(
        "open",
        "datum_compute.cli.commands.open",
        "Open a workload in the browser, or print its address.",
    ),
    Verb(
        "explain",
        "datum_compute.cli.commands.explain",
        "Explain why a workload or instance is not ready.",
    ),
    Verb("doctor", "datum_compute.cli.commands.doctor", "Check everything a workload needs."),
    Verb("events", "datum_compute.cli.commands.events", "Show the events of a workload."),
    Verb(
        "quota",
        "datum_compute.cli.commands.quota",
        "Show the usage and limits of the project.",
    ),
    Verb("access", "datum_compute.cli.commands.access", "Show or request access to compute."),
    Verb(
        "cities", "datum_compute.cli.commands.cities", "List the cities that workloads can run in."
    ),
    Verb(
        "instance-types",
        "datum_compute.cli.commands.instance_types",
        "List the instance types.",
    ),
    Verb("export", "datum_compute.cli.commands.export", "Print a workload as a manifest."),
    Verb("init", "datum_compute.cli.commands.init", "Write datum.toml with the default workload."),
    Verb("cell", "datum_compute.cli.commands.cell", "Join, drain and remove cells."),
    Verb("local", "datum_compute.cli.local.up", "Run the platform on this machine."),
    Verb("version", "datum_compute.cli.commands.version", "Show the version."),
    Verb(
        "completion",
        "datum_compute.cli.commands.completion",
        "Print the completion script of a shell.",
    ),
)

# Names of subcommands that users may try as verbs, and their group.
SUBCOMMAND_GROUPS = {
    **dict.fromkeys(("history", "undo", "pause", "resume"), "rollout"),
    **dict.fromkeys(("up", "down", "backup", "restore", "reset"), "local"),
    **dict.fromkeys(("join", "drain", "undrain"), "cell"),
    "top": "instances",
    "describe": "workloads",
}


# --- The main group


_BY_NAME = {verb.name: verb for verb in VERBS}


class LazyGroup(click.Group):
    """Import the module of a verb when it is used."""

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
            suggestion = (
                f"{SUBCOMMAND_GROUPS[args[0]]} {args[0]}" if args[0] in SUBCOMMAND_GROUPS else ""
            )
            suggestion = suggestion or (close[0] if close else "")
            guess = f" Did you mean {suggestion!r}?" if suggestion else ""
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


# --- Groups of a verb, such as ``workloads`` and ``rollout``
# ``default`` is the subcommand without a word: ``workloads`` is ``workloads list``. With
# ``name_means``, a word that is no subcommand is a name: ``rollout web`` is ``rollout status web``.


class NounGroup(click.Group):
    def __init__(self, *args: Any, default: str = "", name_means: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default
        self.name_means = name_means

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_help = any(word in ctx.help_option_names for word in args[:1])
        if self.default and not is_help and (not args or args[0].startswith("-")):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in self.commands and not word.startswith("-"):
            if self.name_means and not self._is_typo(word):
                return super().resolve_command(ctx, [self.name_means, *args])
            raise click.UsageError(self._unknown_command_message(ctx, args), ctx)
        return super().resolve_command(ctx, args)

    def _is_typo(self, word: str) -> bool:
        """Return True if a word is a misspelled subcommand rather than a name."""
        return bool(get_close_matches(word, self.commands, n=1, cutoff=0.8))

    def _unknown_command_message(self, ctx: click.Context, args: list[str]) -> str:
        word, text = args[0], f"There is no command {args[0]!r} in {ctx.info_name!r}."
        close = get_close_matches(word, self.commands, n=1)
        if close:
            suggestion = " ".join((ctx.command_path, close[0], *args[1:]))
            return f"{text} Did you mean '{suggestion}'?"
        is_known_verb = word if word in {verb.name for verb in VERBS} else ""
        root = ctx.find_root().info_name
        return f"{text} Did you mean '{root} {' '.join(args)}'?" if is_known_verb else text


# --- Suggestions for unknown names and flags


_NAMES_MAX = 10
_ALIKE = 0.7
# Flags of other tools, and ours with the same meaning.
_FOREIGN_FLAGS = {
    **dict.fromkeys(("--replicas", "--min-replicas", "--scale", "--count", "--instances"), "--min"),
    **dict.fromkeys(("--cities", "--region", "--location", "--zone"), "--city"),
    **dict.fromkeys(("--background", "--daemon", "-d"), "--detach"),
    **dict.fromkeys(("--format", "--json", "--yaml"), "--output"),
    **dict.fromkeys(("--force", "--assume-yes", "--auto-approve"), "--yes"),
    **dict.fromkeys(("--size", "--type"), "--instance-type"),
    "--all": "--all-namespaces",
    "--filename": "--file",
    "--watch": "--follow",
}


def named_hint(given: str, names: Iterable[str]) -> str:
    """Return a hint with the closest name, otherwise the existing names; empty without any."""
    known = sorted(names)
    close = get_close_matches(given, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    more = ", ..." if len(known) > _NAMES_MAX else ""
    return f"Existing names: {', '.join(known[:_NAMES_MAX])}{more}" if known else ""


def suggest_option(given: str, known: Sequence[str], arguments: Sequence[str]) -> tuple[str, str]:
    """Return the flag as it was written, and the suggested flag or an empty text.

    click reads ``-image=x`` as ``-i ...``, so the words of the command line are checked as well.
    """
    if len(given) == 2:
        for word in arguments:
            name = f"-{word.partition('=')[0]}"
            if word.startswith(given) and name in known:
                return name[1:], name
    other = _FOREIGN_FLAGS.get(given, "")
    if other in known:
        return given, other
    close = get_close_matches(given, known, n=1, cutoff=_ALIKE)
    return given, close[0] if close else ""
