"""The session of a command with one plane. Only this module starts the event loop."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.meta.codec import DecodeError
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import HUB
from datum_compute.cli.connect.gateway import PlaneGateway
from datum_compute.cli.connect.target import ResolvedTarget, resolve_target
from datum_compute.cli.environment import CliEnvironment, default_state_dir
from datum_compute.cli.errors import OtherError, UsageError, from_api_error
from datum_compute.cli.options import parse_duration, target_options
from datum_compute.cli.render.documents import OutputDocument, to_document
from datum_compute.cli.render.events import EVENTS
from datum_compute.cli.render.output import Output, build_output
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client

T = TypeVar("T")

# A process that is suspended this often in a row is reported, so after about six seconds.
SUSPENSION_CHECK_S, SUSPENDED_CHECKS = 2.0, 3
EVENT_SCHEMA = "compute.datumapis.com/cli-event/v1"


@dataclass(frozen=True, slots=True)
class Session:
    """Clients, output and target of a command.

    ``target_name`` is the plane for display, such as project/default, with the namespace if it is
    not the default one. ``platform`` is ``client`` if the plane is an API server of its own instead
    of a path of one.
    """

    client: Client
    namespace: str
    target_name: str
    output: Output
    environment: CliEnvironment
    platform: Client
    gateway: PlaneGateway
    as_json: bool = False
    kubeconfig_files: tuple[Path, ...] = ()  # where other planes may be found
    kubectl_flags: tuple[str, ...] = ()
    # Address and certificate authority of the server.
    server: tuple[str, bytes | None] = ("", None)

    def emit_event(self, event: OutputDocument, text: str = "", *, color: str = "") -> None:
        """Print a step of a change or a wait: with ``-o json`` an event on stdout, else a line on
        stderr. ``EVENTS`` has all events."""
        if self.as_json:
            name, at = EVENTS[type(event)], timestamp(self.environment.now())
            head = {"schema": EVENT_SCHEMA, "event": name, "at": at}
            self.output.json_line({**head, **to_document(event)})
        elif text:
            self.output.note(text, color=color)

    def print_note(self, text: str) -> None:
        """Print a line on stderr, unless the output is JSON."""
        if not self.as_json:
            self.output.note(text)

    def command(self, *words: str) -> str:
        return self.environment.command(*words)

    def complete_command(self, command: str) -> str:
        """Add what selects this plane to a command of the advice on a reason.

        A command that names a context already is for another plane of the same kubeconfig.
        """
        words = shlex.split(command)
        if words[0] != "kubectl":
            return self.command(*words[2:])  # the advice names the program in two words
        named = any(word.startswith("--context=") for word in words)
        flags = [
            flag
            for flag in self.kubectl_flags
            if not (named and flag.startswith(("--context=", "--server=")))
        ]
        return shlex.join(["kubectl", *flags, *words[1:]])


class WarningPrinter:
    """Prints each warning of a server once. A preview and its write often cause the same one."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._printed: set[str] = set()

    def print(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            self._output.note(f"Warning: {text}", color="yellow")


def run_in_session(
    ctx: click.Context, body: Callable[[Session], Awaitable[T]], *, as_json: bool = False
) -> T:
    """Find the plane, connect, run the body, close. With ``as_json``, steps are JSON events."""
    environment: CliEnvironment = ctx.obj
    options = target_options(ctx)
    target = resolve_target(environment, options)
    if options.request_timeout:
        connection = replace(
            target.connection, read_s=float(parse_duration(options.request_timeout))
        )
        target = replace(target, connection=connection)
    namespace = options.namespace or target.connection.namespace
    return run_loop(_run_session(environment, target, namespace, body, as_json=as_json))


def run_on_hub(ctx: click.Context, body: Callable[[Session], Awaitable[T]]) -> T:
    """Run the body on the hub, for operators of the platform, or on the selected context."""
    environment: CliEnvironment = ctx.obj
    options = target_options(ctx)
    hub = replace(options, context=options.context or HUB, project="")
    target = resolve_target(environment, hub, inner=True)
    namespace = target.connection.namespace
    return run_loop(_run_session(environment, target, namespace, body, as_json=False))


def run_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


async def _run_session(
    environment: CliEnvironment,
    target: ResolvedTarget,
    namespace: str,
    body: Callable[[Session], Awaitable[T]],
    *,
    as_json: bool,
) -> T:
    connection = target.connection
    try:
        opened = environment.open_transport(connection)
    except ValueError as error:  # an invalid certificate authority
        raise OtherError(f"Context {connection.context!r}: {error}.") from error
    async with opened as transport, AsyncExitStack() as stack:
        output = build_output(environment)
        client = build_client(connection, transport, WarningPrinter(output).print)
        above = build_client(replace(connection, path_prefix=""), transport)
        session = Session(
            client=client,
            namespace=namespace,
            target_name=_target_name(connection.context, namespace),
            output=output,
            environment=environment,
            platform=above if connection.path_prefix else client,
            gateway=PlaneGateway(client, connection, environment.open_transport, stack),
            as_json=as_json,
            kubeconfig_files=target.files,
            kubectl_flags=target.kubectl_flags,
            server=(connection.server, connection.ca_pem),
        )
        try:
            async with report_suspension(target, environment):
                return await body(session)
        except ApiError as error:
            raise from_api_error(error, environment.command) from error
        except DecodeError as error:
            raise OtherError(f"Cannot read the response of {connection.server}: {error}") from error
        except Unreachable as error:
            raise _unreachable_error(error, target, environment) from error


@asynccontextmanager
async def report_suspension(
    target: ResolvedTarget, environment: CliEnvironment
) -> AsyncIterator[None]:
    """Raise OtherError if the process of the local platform is suspended while the block waits.

    A suspended process keeps its connections, and requests to it end only by their timeout.
    """
    if not target.is_local_platform:
        yield
        return
    watch = _SuspensionWatch(default_state_dir(environment))
    try:
        async with asyncio.timeout(None) as limit:
            watch.start(limit)
            try:
                yield
            finally:
                watch.stop()
    except TimeoutError:
        if not watch.pid:
            raise
        raise OtherError(
            f"The process of the local platform (pid {watch.pid}) is suspended, for example by "
            "SIGSTOP or Ctrl-Z. It does not respond until it is continued.",
            f"Continue it: kill -CONT {watch.pid}",
        ) from None


class _SuspensionWatch:
    """Ends the block of a timeout after the process was suspended at several checks in a row.

    ``pid`` is the process; 0 until then.
    """

    def __init__(self, state_dir: Path) -> None:
        self.pid = 0
        self._state_dir = state_dir
        self._suspended_checks = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SUSPENSION_CHECK_S, self._check, limit)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, limit: asyncio.Timeout) -> None:
        from datum_compute.cli.local.platform import find_running, is_suspended

        running = find_running(self._state_dir)
        if running is None or not is_suspended(running):
            self._suspended_checks = 0
        else:
            self._suspended_checks += 1
            if self._suspended_checks == SUSPENDED_CHECKS:
                self.pid = running.pid
                limit.reschedule(asyncio.get_running_loop().time())
                return
        self.start(limit)


def _target_name(context: str, namespace: str) -> str:
    return context if namespace == "default" else f"{context}, namespace {namespace}"


def _unreachable_error(
    error: Unreachable, target: ResolvedTarget, environment: CliEnvironment
) -> UsageError:
    if target.is_local_platform:
        return OtherError(
            f"The local platform at {target.connection.server} does not respond.",
            f"Start it: {environment.command('local', 'up')}",
        )
    return OtherError(str(error), "Choose another with --kubeconfig, --context or --project.")
