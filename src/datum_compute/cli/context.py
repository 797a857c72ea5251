"""What a command knows of the world around it. The only place that reads the environment.

Everything a command needs from outside (variables, streams, the wall clock, the way to a server)
is a field of Surroundings, so that tests hand in their own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TextIO

from datum_compute.cli.patience import Patience

if TYPE_CHECKING:
    from datum_compute.client.auth.kubeconfig import Connection
    from datum_compute.client.transport.interface import Transport

    OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]

STATE_DIR = "DATUM_STATE_DIR"
PROJECT = "DATUM_PROJECT"
API_HOST = "DATUM_API_HOST"
CREDENTIALS_HELPER = "DATUM_CREDENTIALS_HELPER"
SESSION = "DATUM_SESSION"
KUBECONFIG = "KUBECONFIG"
JOIN_TOKEN = "DATUM_JOIN_TOKEN"  # noqa: S105 - the name of a variable
SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT = "KUBERNETES_SERVICE_PORT"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """``program`` is how the user calls us, and how hints spell the next command."""

    program: str
    environ: Mapping[str, str]
    home: Path
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    now: Callable[[], float]
    open_transport: OpenTransport
    cwd: Path = Path()
    columns: Callable[[], int] = lambda: 80
    patience: Patience = field(default_factory=Patience)
    open_browser: Callable[[str], bool] = lambda _address: False

    @property
    def may_ask(self) -> bool:
        """Whether somebody is there to answer a prompt."""
        return self.stdin.isatty() and self.stderr.isatty()

    def may_color(self, stream: TextIO) -> bool:
        return (
            stream.isatty()
            and not self.environ.get("NO_COLOR")
            and self.environ.get("TERM") != "dumb"
        )

    def may_redraw(self, stream: TextIO) -> bool:
        """Whether the cursor can be moved back over what was printed."""
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    def command(self, *words: str) -> str:
        """A command line of ours, for a hint."""
        return " ".join((self.program, *words))


def process_surroundings() -> tuple[Surroundings, list[str]]:
    """The surroundings of this process, and its arguments."""
    called = Path(sys.argv[0]).name
    return Surroundings(
        program="kubectl compute" if called.startswith("kubectl-compute") else "datumctl compute",
        environ=os.environ,
        home=Path.home(),
        stdin=sys.stdin,
        stdout=sys.stdout,
        stderr=sys.stderr,
        now=time.time,
        open_transport=open_http_transport,
        cwd=Path.cwd(),
        columns=_columns,
        open_browser=_open_browser,
    ), sys.argv[1:]


def _columns() -> int:
    """Of the terminal itself, as it is now: a variable would not follow a window."""
    for descriptor in (2, 1, 0):
        try:
            return os.get_terminal_size(descriptor).columns or 80
        except OSError:
            continue
    return 80


def _open_browser(address: str) -> bool:
    import webbrowser

    return webbrowser.open(address)


def open_http_transport(connection: Connection) -> AbstractAsyncContextManager[Transport]:
    from datum_compute.client.auth.credentials import AuthEnvironment
    from datum_compute.client.connect import open_transport

    outside = AuthEnvironment(
        environ=os.environ,
        is_terminal=sys.stdin.isatty() and sys.stderr.isatty(),
        unix_s=time.time,
        random=Random(),  # noqa: S311 - jitter, not secrets
    )
    return open_transport(connection, outside)


def default_state_dir(surroundings: Surroundings) -> Path:
    """Where the local platform lives, unless a command is told otherwise."""
    named = surroundings.environ.get(STATE_DIR)
    if named:
        return Path(named).expanduser().absolute()
    state_home = surroundings.environ.get("XDG_STATE_HOME", "")
    # A relative XDG_STATE_HOME is to be ignored, says its specification.
    base = Path(state_home) if state_home.startswith("/") else surroundings.home / ".local/state"
    return base / "datum-compute"
