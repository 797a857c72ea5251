"""``exec``: a command in an instance."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from datum_compute.api.gateway import (
    END_OF_INPUT,
    STDERR,
    STDIN,
    STDOUT,
    ExecResult,
    encode_exec_result,
)
from datum_compute.api.kinds import INSTANCE
from datum_compute.cli.commands.exec import LostError, RemoteProcess
from datum_compute.cli.errors import ForbiddenError, OtherError
from datum_compute.client.transport.websocket import POLICY, WebSocket
from tests.cli.runner import CliRunner
from tests.cli.world import NAMESPACE, World
from tests.gateway.gateway_world import connect_in_memory

FIRST = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--port=80", "-y")


pytestmark = pytest.mark.usefixtures("local_platform")


def test_logs_and_exec_report_that_the_driver_does_not_support_them(
    cli: CliRunner, world: World
) -> None:
    cli.run(*FIRST)
    assert cli.run("logs", "web") == 1
    assert "does not support logs" in cli.err
    assert cli.run("logs", "web", "-c", "ap") == 3
    assert "Did you mean 'app'?" in cli.err
    name = world.do(lambda c: c.list(INSTANCE, NAMESPACE)).items[0].metadata.name
    assert cli.run("exec", name, "--", "ls") == 1
    assert "does not support exec" in cli.err
    assert cli.run("exec", name[:-1] + "9", "--", "ls") == 3
    assert f"Did you mean {name!r}?" in cli.err


# --- the process of an instance


Serve = Callable[[WebSocket], Awaitable[None]]


async def run_process(
    serve: Serve, *, typed: bytes | None = None
) -> tuple[int | Exception, bytes, bytes]:
    """Run a command that ``serve`` answers. Return its exit code or error, and its output."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    reader, writer = os.pipe()
    os.write(writer, typed or b"")
    os.close(writer)
    with os.fdopen(reader) as stdin, contextlib.ExitStack() as stack:
        streams = [stack.enter_context(io.TextIOWrapper(stream)) for stream in (stdout, stderr)]
        environment = CliRunner(Path("/")).environment(
            stdin,  # type: ignore[arg-type]
            *streams,  # type: ignore[arg-type]
        )
        session: Any = SimpleNamespace(environment=environment)
        ours, theirs = connect_in_memory()
        process = RemoteProcess(session, "web-0", WebSocket(ours, of_server=False))
        serving = asyncio.ensure_future(serve(WebSocket(theirs, of_server=True)))
        result: int | Exception
        try:
            result = await process.run(stdin=typed is not None, tty=False)
        except Exception as error:
            result = error
        await serving
        return result, stdout.getvalue(), stderr.getvalue()


async def test_output_is_passed_by_stream_and_the_exit_code_is_returned() -> None:
    async def serve(socket: WebSocket) -> None:
        await socket.send(bytes((STDOUT,)) + b"one\xff")
        await socket.send(bytes((STDERR,)) + b"two")
        await socket.send(encode_exec_result(ExecResult(exit_code=7)))

    assert await run_process(serve) == (7, b"one\xff", b"two")


async def test_input_is_passed_until_its_end() -> None:
    received: list[bytes | None] = []

    async def serve(socket: WebSocket) -> None:
        while (message := await socket.receive()) != END_OF_INPUT:
            received.append(message)
        await socket.send(encode_exec_result(ExecResult(exit_code=0)))

    result, _, _ = await run_process(serve, typed=b"hello\n")
    assert (result, received) == (0, [bytes((STDIN,)) + b"hello\n"])


async def test_a_command_that_cannot_run_is_an_error() -> None:
    async def serve(socket: WebSocket) -> None:
        await socket.send(encode_exec_result(ExecResult(message="no shell")))

    error, _, _ = await run_process(serve)
    assert isinstance(error, OtherError)
    assert error.message == "Cannot run the command in 'web-0': no shell."


@pytest.mark.parametrize(
    ("code", "reason", "error_type", "message"),
    [
        (POLICY, "access revoked", ForbiddenError, "was stopped: access revoked."),
        (1011, "the cell left", LostError, "was lost: the cell left."),
        (1000, "", LostError, "was lost."),
    ],
)
async def test_a_connection_without_a_result_is_an_error_with_the_reason(
    code: int, reason: str, error_type: type[Exception], message: str
) -> None:
    async def serve(socket: WebSocket) -> None:
        await socket.close(code, reason)

    error, _, _ = await run_process(serve)
    assert type(error) is error_type
    assert isinstance(error, OtherError | ForbiddenError)
    assert error.message.endswith(message)


def test_a_terminal_requires_stdin_to_be_one(cli: CliRunner, world: World) -> None:
    cli.run(*FIRST)
    name = world.do(lambda c: c.list(INSTANCE, NAMESPACE)).items[0].metadata.name
    assert cli.run("exec", name, "-t", "--", "sh") == 2
    assert "-t requires stdin to be a terminal" in cli.err
