"""Options that several verbs share.

Connection options are accepted before and after the verb; the later one wins. Their values are
stored in the click context, so that no function has to pass them on. ``with_given_flags`` repeats
them in every command that is printed for the user.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

YES = "--yes"
STATE_DIR_FLAG = "--state-dir"
_CONNECTION_FLAGS = ("--kubeconfig", "--context", "--project", "--namespace", "--request-timeout")
# Verbs that connect to no plane.
_WITHOUT_CONNECTION = ("local", "version", "completion")
_FLAGS_KEY = "datum_compute.cli.flags"
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """The plane and namespace that the command line selects; empty values were not given."""

    kubeconfig: str = ""
    context: str = ""
    project: str = ""
    namespace: str = ""
    request_timeout: str = ""


def connection_options(command: F) -> F:
    for names, metavar, text in (
        (("-n", "--namespace"), "NAME", "Namespace of the project."),
        (("--project",), "NAME", "Project."),
        (("--context",), "NAME", "Context of the kubeconfig."),
        (("--kubeconfig",), "FILE", "Kubeconfig file."),
        (
            ("--request-timeout",),
            "DURATION",
            "Time limit for each response of the server, such as 10s.",
        ),
    ):
        command = click.option(
            *names, metavar=metavar, help=text, expose_value=False, callback=_remember
        )(command)
    return command


def target_options(ctx: click.Context) -> TargetOptions:
    flags = _given_flags(ctx)
    return TargetOptions(
        **{flag[2:].replace("-", "_"): flags.get(flag, "") for flag in _CONNECTION_FLAGS}
    )


def _given_flags(ctx: click.Context) -> dict[str, str]:
    """Return the flags that select a target; all contexts of a command line share them."""
    flags: dict[str, str] = ctx.meta.setdefault(_FLAGS_KEY, {})
    return flags


def remember_flag(ctx: click.Context, flag: str, value: str) -> None:
    """Repeat a flag in the commands that are printed for the user."""
    _given_flags(ctx)[flag] = value


def with_given_flags(words: Sequence[str]) -> list[str]:
    """Return a command line for the user with the flags that select the current target.

    Without them a printed command would act on another project or on another local platform.
    """
    ctx = click.get_current_context(silent=True)
    given = _given_flags(ctx) if ctx is not None else {}
    if words[:1] == ("local",):
        repeated: Sequence[str] = (STATE_DIR_FLAG,)
    else:
        repeated = () if words[0] in _WITHOUT_CONNECTION else _CONNECTION_FLAGS
    present = {word.partition("=")[0] for word in words}
    flags = [f"{flag}={given[flag]}" for flag in repeated if flag in given and flag not in present]
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], *flags, *words[end:]]


def output_option(*formats: str) -> Callable[[F], F]:
    return click.option(
        "-o",
        "--output",
        "output_format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="Output format.",
    )


def yes_option(command: F) -> F:
    return click.option("-y", YES, is_flag=True, help="Do not ask for confirmation.")(command)


def accept_yes(command: click.Command) -> None:
    """Let a command, or every command of a group, accept -y, so that scripts can always pass it.

    Where there is nothing to confirm, the option has no effect and is not part of the help.
    """
    if isinstance(command, click.Group):
        for child in command.commands.values():
            accept_yes(child)
    elif not any(YES in parameter.opts for parameter in command.params):
        ignored = click.Option(["-y", YES], is_flag=True, hidden=True, expose_value=False)
        command.params.append(ignored)


def all_namespaces_option(command: F) -> F:
    return click.option(
        *("-A", "--all-namespaces"), is_flag=True, help="Include all namespaces of the project."
    )(command)


def wait_options(default: str) -> Callable[[F], F]:
    def decorate(command: F) -> F:
        command = click.option(
            "--timeout",
            "timeout_s",
            default=default,
            show_default=True,
            metavar="DURATION",
            callback=lambda _ctx, _param, value: parse_duration(value),
            help="Maximum time to wait, such as 90s, 10m or 1h30m.",
        )(command)
        return click.option(
            "--wait/--no-wait", default=True, help="Wait for the result.", show_default=True
        )(command)

    return decorate


def parse_duration(text: str) -> int:
    """Return the seconds of ``90``, ``90s``, ``10m`` or ``1h30m``."""
    found = _DURATION.fullmatch(text.strip())
    if not found or not any(found.groups()):
        raise click.BadParameter(f"{text!r} is not a duration, such as 90s, 10m or 1h.")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        if param.name == "request_timeout" and parse_duration(value) < 1:
            raise click.BadParameter("The value must be at least 1 second.")
        remember_flag(ctx, param.opts[-1], value)
