"""Groups of commands: what a first word means, and what somebody may have meant by one.

A group may have a default: ``workloads`` is ``workloads list``. Where ``name_means`` is set, a
first word that is no verb is a name: ``rollout web`` is ``rollout status web``.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import click

from datum_compute.cli.commands import VERBS


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
