"""The environment of a command: variables, streams, clock, transport. Only this module reads it.

Each is a field of ``CliEnvironment``, so that tests can replace it.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TextIO

from datum_compute.cli.errors import UsageError
from datum_compute.cli.options import with_given_flags

if TYPE_CHECKING:
    from datum_compute.client.auth.kubeconfig import Connection
    from datum_compute.client.transport.interface import Transport

    OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]


@dataclass(frozen=True, slots=True)
class CliTimeouts:
    """All durations that the command line waits for. Tests shorten them."""

    reread_s: int = 2  # a watch that returns nothing is followed by a read
    settle_s: float = 0.05  # events that arrive within this time are handled together
    retry_s: float = 1.0  # between failed reads
    failures_max: int = 60  # failed reads in a row, after which a wait fails
    stall_s: float = 30.0  # a rollout without progress is reported as stalled
    user_cause_s: float = 15.0  # a cause that only the user can remove ends the wait
    # Without crash reports: an instance that crashes for this long has crashed again after two
    # restarts. The driver restarts it after 10 s and 20 s. It has recovered if it runs for 10 s.
    crash_s: float = 60.0
    first_status_s: float = 30.0  # for the first status after a request for access
    completion_s: float = 1.5  # for the names that a shell completes
    side_read_s: float = 5.0  # for additional details from a cell, which may be unreachable
    # For the reports of all cells. The hub waits 5 s for a cell that does not respond.
    cells_read_s: float = 8.0
    final_status_s: float = 3.0  # for the last status of an object that was deleted


# --- Variables that commands read


STATE_DIR = "DATUM_STATE_DIR"
PROJECT = "DATUM_PROJECT"
API_HOST = "DATUM_API_HOST"
CREDENTIALS_HELPER = "DATUM_CREDENTIALS_HELPER"
SESSION = "DATUM_SESSION"
KUBECONFIG = "KUBECONFIG"
JOIN_TOKEN_VARIABLE = "DATUM_JOIN_TOKEN"  # noqa: S105 - the name of a variable
SERVICE_HOST = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT = "KUBERNETES_SERVICE_PORT"


@dataclass(frozen=True, slots=True)
class CliEnvironment:
    """``program`` is the name by which the user runs the command line, such as kubectl compute."""

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
    rows: Callable[[], int] = lambda: 24
    timeouts: CliTimeouts = field(default_factory=CliTimeouts)
    open_browser: Callable[[str], bool] = lambda _address: False

    @property
    def may_ask(self) -> bool:
        """Return True if a user can answer prompts on the terminal."""
        return self.stdin.isatty() and self.stderr.isatty()

    def may_color(self, stream: TextIO) -> bool:
        return (
            stream.isatty()
            and not self.environ.get("NO_COLOR")
            and self.environ.get("TERM") != "dumb"
        )

    def may_redraw(self, stream: TextIO) -> bool:
        """Return True if printed lines can be overwritten."""
        terminal = self.environ.get("TERM", "").lower()
        return stream.isatty() and terminal not in ("dumb", "unknown")

    def command(self, *words: str) -> str:
        """Return a command for the user to run, with the connection flags that were given.

        Every command that is printed is built here or in ``Session.complete_command``.
        """
        return f"{self.program} {shlex.join(with_given_flags(words))}"


def read_process_environment() -> tuple[CliEnvironment, list[str]]:
    """Return the environment and the arguments of this process."""
    called = Path(sys.argv[0]).name
    return CliEnvironment(
        program="kubectl compute" if called.startswith("kubectl-compute") else "datumctl compute",
        environ=os.environ,
        home=Path.home(),
        stdin=sys.stdin,
        stdout=sys.stdout,
        stderr=sys.stderr,
        now=time.time,
        open_transport=open_http_transport,
        cwd=Path.cwd(),
        columns=lambda: _terminal_size().columns,
        rows=lambda: _terminal_size().lines,
        open_browser=_open_browser,
    ), sys.argv[1:]


def _terminal_size() -> os.terminal_size:
    """Return the size of the terminal. $COLUMNS does not change when a window is resized."""
    for descriptor in (2, 1, 0):
        try:
            size = os.get_terminal_size(descriptor)
        except OSError:
            continue
        return os.terminal_size((size.columns or 80, size.lines or 24))
    return os.terminal_size((80, 24))


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


def default_state_dir(environment: CliEnvironment) -> Path:
    """Return the default state directory of the local platform."""
    named = environment.environ.get(STATE_DIR)
    if named:
        return Path(named).expanduser().absolute()
    state_home = environment.environ.get("XDG_STATE_HOME", "")
    # The XDG specification requires a relative XDG_STATE_HOME to be ignored.
    base = Path(state_home) if state_home.startswith("/") else environment.home / ".local/state"
    return base / "datum-compute"


# --- Files and stdin, up to a size limit
# The limit applies before the content is in memory. It also applies to pipes and devices.


# The server accepts no larger request.
FILE_BYTES_MAX = 3 * 1024 * 1024


def read_text_file(file: Path, shown: str, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Return the UTF-8 text of a file. Raises UsageError that names the file as ``shown``."""
    try:
        return read_file(file, shown, bytes_max).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not text in UTF-8.") from None


def read_file(file: Path, shown: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.") from error
    if len(content) > bytes_max:
        raise _too_large(shown, bytes_max)
    return content


def read_stdin(stdin: TextIO, bytes_max: int = FILE_BYTES_MAX) -> str:
    try:
        text = stdin.read(bytes_max + 1)
    except UnicodeDecodeError:
        raise UsageError("stdin is not text in UTF-8.") from None
    if len(text) > bytes_max:
        raise _too_large("stdin", bytes_max)
    return text


def _too_large(shown: str, bytes_max: int) -> UsageError:
    return UsageError(
        f"{shown} is larger than {bytes_max} bytes.",
        "Split the objects into several files.",
    )
