"""The command group: knows the verbs by name and imports one only when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import click

from datum_compute.cli.options import accept_yes, connection_options

# --- Every verb, by hand: its name, the module that ends in ``COMMAND = ...``, and one line of help
# The line stands here, and not only in the module, so that ``--help`` imports nothing.


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
    Verb(
        "rollout",
        "datum_compute.cli.commands.rollout",
        "Follow, undo, restart, pause or resume a rollout.",
    ),
    Verb("workloads", "datum_compute.cli.commands.workloads", "List or describe workloads."),
    Verb("instances", "datum_compute.cli.commands.instances", "List or describe instances."),
    Verb("logs", "datum_compute.cli.commands.logs", "Show what a workload prints."),
    Verb("exec", "datum_compute.cli.commands.exec", "Run a command in an instance."),
    Verb(
        "open",
        "datum_compute.cli.commands.open",
        "Open a workload in a browser, or print its address.",
    ),
    Verb(
        "explain",
        "datum_compute.cli.commands.explain",
        "Say why a workload or instance is as it is.",
    ),
    Verb("doctor", "datum_compute.cli.commands.doctor", "Check everything a workload needs."),
    Verb("events", "datum_compute.cli.commands.events", "Show what happened to a workload lately."),
    Verb(
        "quota",
        "datum_compute.cli.commands.quota",
        "Show what the project uses and what it may use.",
    ),
    Verb("access", "datum_compute.cli.commands.access", "See or ask for access to compute."),
    Verb(
        "cities", "datum_compute.cli.commands.cities", "List the cities that workloads can run in."
    ),
    Verb(
        "instance-types",
        "datum_compute.cli.commands.instance_types",
        "List the sizes that instances can have.",
    ),
    Verb("export", "datum_compute.cli.commands.export", "Print a workload as a file to deploy."),
    Verb(
        "init", "datum_compute.cli.commands.init", "Write datum.toml, so that verbs need no name."
    ),
    Verb("cell", "datum_compute.cli.commands.cell", "Let cells join, drain them, let them leave."),
    Verb("local", "datum_compute.cli.local.up", "Run the whole platform on this machine."),
    Verb("version", "datum_compute.cli.commands.version", "Show the version."),
    Verb(
        "completion",
        "datum_compute.cli.commands.completion",
        "Print the completion script of a shell.",
    ),
)

# Words that people try as verbs, and the verb that has them.
INSIDE = {
    **dict.fromkeys(("history", "undo", "pause", "resume"), "rollout"),
    **dict.fromkeys(("up", "down", "backup", "restore", "reset"), "local"),
    **dict.fromkeys(("join", "drain", "undrain"), "cell"),
    "top": "instances",
    "describe": "workloads",
}


# --- group


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


# --- Groups of commands: what a first word means, and what somebody may have meant by one
# A group may have a default: ``workloads`` is ``workloads list``. Where ``name_means`` is set, a
# first word that is no verb is a name: ``rollout web`` is ``rollout status web``.


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
            if self.name_means and not self._is_slip(word):
                return super().resolve_command(ctx, [self.name_means, *args])
            raise click.UsageError(self._unknown(ctx, args), ctx)
        return super().resolve_command(ctx, args)

    def _is_slip(self, word: str) -> bool:
        """Whether a word is one of ours with a letter wrong, rather than a name."""
        return bool(get_close_matches(word, self.commands, n=1, cutoff=0.8))

    def _unknown(self, ctx: click.Context, args: list[str]) -> str:
        """What to say of a word that is no command of the group."""
        word, text = args[0], f"There is no command {args[0]!r} in {ctx.info_name!r}."
        close = get_close_matches(word, self.commands, n=1)
        if close:
            meant = " ".join((ctx.command_path, close[0], *args[1:]))
            return f"{text} Did you mean '{meant}'?"
        elsewhere = word if word in {verb.name for verb in VERBS} else ""
        root = ctx.find_root().info_name
        return f"{text} Did you mean '{root} {' '.join(args)}'?" if elsewhere else text


# --- What somebody may have meant who wrote a name or a flag that there is not


_NAMES_MAX = 10
_ALIKE = 0.7
# What other tools call it.
_ELSEWHERE = {
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


def named_hint(asked: str, names: Iterable[str]) -> str:
    """The nearest name, else what there is; empty if there is nothing."""
    known = sorted(names)
    close = get_close_matches(asked, known, n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    more = ", ..." if len(known) > _NAMES_MAX else ""
    return f"There are: {', '.join(known[:_NAMES_MAX])}{more}" if known else ""


def meant_option(asked: str, known: Sequence[str], arguments: Sequence[str]) -> tuple[str, str]:
    """The flag as it was written, and the one that was meant; empty if nobody can tell.

    ``-image=x`` is read as ``-i ...``, so the words of the command line are looked at too.
    """
    if len(asked) == 2:
        for word in arguments:
            name = f"-{word.partition('=')[0]}"
            if word.startswith(asked) and name in known:
                return name[1:], name
    other = _ELSEWHERE.get(asked, "")
    if other in known:
        return asked, other
    close = get_close_matches(asked, known, n=1, cutoff=_ALIKE)
    return asked, close[0] if close else ""
