"""What verbs of ``local`` share: the state directory, and lengths of time below a second."""

from __future__ import annotations

import re
from pathlib import Path

import click

from datum_compute.cli.environment import default_state_dir
from datum_compute.cli.options import F

_SHORT = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)(ms|s)")


def state_dir_option(command: F) -> F:
    return click.option(
        "--state-dir",
        metavar="DIR",
        callback=_state_dir,
        help="Where the platform keeps its data.  [default: $DATUM_STATE_DIR or the XDG one]",
    )(command)


def _state_dir(ctx: click.Context, _param: click.Parameter, value: str | None) -> Path:
    # Resolved, because the running process is known by the directory on its command line.
    named = Path(value).expanduser() if value else default_state_dir(ctx.obj)
    return named.resolve()


def parse_short(text: str) -> float:
    """Seconds of ``50ms`` or ``1.5s``."""
    found = _SHORT.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is not a length of time; write for example 50ms or 2s.")
    number, unit = found.groups()
    seconds = float(number) / 1000 if unit == "ms" else float(number)
    if seconds > 60:
        raise click.BadParameter(f"{text!r} is more than a minute.")
    return seconds
