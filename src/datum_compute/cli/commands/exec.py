"""``exec``: runs a command in an instance, through the gateway of the platform."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import TextIO

import click

from datum_compute.api.errors import Conflict, Forbidden, NotFound
from datum_compute.api.gateway import (
    END_OF_INPUT,
    PROTOCOL,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    ExecResult,
    GatewayReason,
    decode_exec_result,
    has_gateway_reason,
    instance_path,
    resize_message,
)
from datum_compute.cli.arguments import container_option, instance_argument
from datum_compute.cli.commands.instances import check_container, find_instance
from datum_compute.cli.connect.gateway_errors import refuse_without_process
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import ConflictError, ForbiddenError, OtherError, UsageError
from datum_compute.cli.options import YES, connection_options
from datum_compute.cli.render.terminal import on_resize, raw_mode, read_bytes, terminal_size
from datum_compute.client.transport.websocket import POLICY, WebSocket

_YES = ("-y", YES)


class ExecCommand(click.Command):
    """Accepts -y before ``--``. Otherwise the option could belong to the program."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            end = args.index("--")
            args = [*(word for word in args[:end] if word not in _YES), *args[end:]]
        elif any(word in _YES for word in args):
            raise click.UsageError("Write -- before the command if -y is one of its options.", ctx)
        return super().parse_args(ctx, args)


@click.command("exec", cls=ExecCommand, short_help="Run a command in an instance.")
@instance_argument
@click.argument("command", nargs=-1, required=True)
@container_option
@click.option("-i", "--stdin", is_flag=True, help="Pass stdin to the command.")
@click.option("-t", "--tty", is_flag=True, help="Allocate a terminal for the command.")
@connection_options
@click.pass_context
def exec_command(
    ctx: click.Context,
    name: str,
    command: tuple[str, ...],
    container: str | None,
    stdin: bool,
    tty: bool,
) -> None:
    """Run a command in the instance NAME, and exit with its exit code.

    Exit code 127 means that the command does not exist, 126 that it cannot be run. The command is
    stopped when the connection ends.

    \b
    Examples:
      datumctl compute exec web-default-dfw-0 -- ls /
      datumctl compute exec web-default-dfw-0 -it -- sh
    """

    async def body(session: Session) -> int:
        from datum_compute.cli.commands.exec import RemoteProcess

        instance = await find_instance(session, name)
        check_container(instance.spec, container)
        if tty and not session.environment.stdin.isatty():
            hint = "Leave out -t to pass stdin to the command."
            raise UsageError("-t requires stdin to be a terminal.", hint)
        query = {
            "command": json.dumps(command),
            "container": container or "",
            "stdin": "true" if stdin else "",
            "tty": "true" if tty else "",
        }
        asked = {key: value for key, value in query.items() if value}
        process = await RemoteProcess.open(session, name, asked)
        return await process.run(stdin=stdin, tty=tty)

    ctx.exit(run_in_session(ctx, body))


COMMAND = exec_command


# --- A process of an instance, with this process's streams in place of its own


class LostError(OtherError):
    reason, retryable = "ConnectionLost", True


@dataclass(slots=True)
class RemoteProcess:
    session: Session
    name: str
    socket: WebSocket

    @classmethod
    async def open(cls, session: Session, name: str, query: dict[str, str]) -> RemoteProcess:
        path = instance_path(session.namespace, name, "exec")
        try:
            return cls(session, name, await session.gateway.websocket(path, PROTOCOL, query))
        except (NotFound, Forbidden) as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                hint = f"Explain: {session.command('explain', name)}"
                raise ConflictError(f"Instance {name!r} is not running.", hint) from error
            refuse_without_process(session, error, "exec", name)
        except Conflict as error:
            hint = f"Show the instance: {session.command('instances', 'describe', name)}"
            raise ConflictError(error.message, hint) from error

    async def run(self, *, stdin: bool, tty: bool) -> int:
        """Pass input and output. Return the exit code."""
        source = self.session.environment.stdin
        tasks = []
        with ExitStack() as stack:
            if tty:
                stack.enter_context(raw_mode(source))
                resized = asyncio.Event()
                resized.set()
                stack.enter_context(on_resize(resized.set))
                tasks.append(asyncio.create_task(self._pass_sizes(source, resized)))
            if stdin:
                tasks.append(asyncio.create_task(self._pass_input(source)))
            try:
                ending = await self._show()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.socket.close()
        return self._exit_code(ending)

    async def _show(self) -> ExecResult | None:
        """Print the output. Return the result; None if the connection ended without one."""
        environment = self.session.environment
        streams = {STDOUT: environment.stdout, STDERR: environment.stderr}
        while (message := await self.socket.receive()) is not None:
            channel = message[0] if message else -1
            if channel in streams:
                _write(streams[channel], message[1:])
            elif channel == STATUS:
                return decode_exec_result(message[1:])
        return None

    async def _pass_input(self, source: TextIO) -> None:
        async with aclosing(read_bytes(source)) as pieces:
            async for data in pieces:
                await self.socket.send(bytes((STDIN,)) + data)
        await self.socket.send(END_OF_INPUT)

    async def _pass_sizes(self, source: TextIO, resized: asyncio.Event) -> None:
        while True:
            await resized.wait()
            resized.clear()
            if (size := terminal_size(source)) is not None:
                await self.socket.send(resize_message(*size))

    def _exit_code(self, ending: ExecResult | None) -> int:
        if ending is not None and ending.exit_code is not None:
            return ending.exit_code
        if ending is not None:
            raise OtherError(f"Cannot run the command in {self.name!r}: {ending.message}.")
        closed = self.socket.closed
        if closed is not None and closed.code == POLICY:
            raise ForbiddenError(f"The command in {self.name!r} was stopped: {closed.reason}.")
        why = f": {closed.reason}" if closed is not None and closed.reason else ""
        raise LostError(f"The connection to the command in {self.name!r} was lost{why}.")


def _write(stream: TextIO, data: bytes) -> None:
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()
