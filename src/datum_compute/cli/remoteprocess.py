"""A process of an instance, with this process's streams in place of its own."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from typing import TextIO

from datum_compute.api.errors import Conflict, Forbidden, NotFound
from datum_compute.api.gateway import (
    END_OF_INPUT,
    NOT_HERE,
    PROTOCOL,
    STATUS,
    STDERR,
    STDIN,
    STDOUT,
    Ending,
    instance_path,
    read_ending,
    resize_message,
)
from datum_compute.cli.errors import ConflictError, ForbiddenError, OtherError
from datum_compute.cli.gateway import refuse_without_process
from datum_compute.cli.session import Session
from datum_compute.cli.terminal import bytes_of, raw, size_of, told_of_size
from datum_compute.client.transport.websocket import POLICY, WebSocket


class LostError(OtherError):
    reason, retryable = "ConnectionLost", True


@dataclass(slots=True)
class RemoteProcess:
    session: Session
    name: str
    socket: WebSocket

    @classmethod
    async def begun(cls, session: Session, name: str, query: dict[str, str]) -> RemoteProcess:
        path = instance_path(session.namespace, name, "exec")
        try:
            return cls(session, name, await session.gateway.websocket(path, PROTOCOL, query))
        except (NotFound, Forbidden) as error:
            if NOT_HERE in error.message:
                hint = f"See why: {session.command('explain', name)}"
                raise ConflictError(f"Instance {name!r} does not run now.", hint) from error
            refuse_without_process(session, error, "exec", name)
        except Conflict as error:
            hint = f"See how it is: {session.command('instances', 'describe', name)}"
            raise ConflictError(error.message, hint) from error

    async def run(self, *, stdin: bool, tty: bool) -> int:
        """Its exit code."""
        source = self.session.surroundings.stdin
        tasks = []
        with ExitStack() as stack:
            if tty:
                stack.enter_context(raw(source))
                resized = asyncio.Event()
                resized.set()
                stack.enter_context(told_of_size(resized.set))
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

    async def _show(self) -> Ending | None:
        """Everything that it says, up to how it ended; None if nobody said that."""
        surroundings = self.session.surroundings
        streams = {STDOUT: surroundings.stdout, STDERR: surroundings.stderr}
        while (message := await self.socket.receive()) is not None:
            channel = message[0] if message else -1
            if channel in streams:
                _write(streams[channel], message[1:])
            elif channel == STATUS:
                return read_ending(message[1:])
        return None

    async def _pass_input(self, source: TextIO) -> None:
        async with aclosing(bytes_of(source)) as pieces:
            async for data in pieces:
                await self.socket.send(bytes((STDIN,)) + data)
        await self.socket.send(END_OF_INPUT)

    async def _pass_sizes(self, source: TextIO, resized: asyncio.Event) -> None:
        while True:
            await resized.wait()
            resized.clear()
            if (size := size_of(source)) is not None:
                await self.socket.send(resize_message(*size))

    def _exit_code(self, ending: Ending | None) -> int:
        if ending is not None and ending.exit_code is not None:
            return ending.exit_code
        if ending is not None:
            raise OtherError(f"The command in {self.name!r} could not be run: {ending.message}.")
        closed = self.socket.closed
        if closed is not None and closed.code == POLICY:
            raise ForbiddenError(f"The command in {self.name!r} was ended: {closed.reason}.")
        why = closed.reason if closed is not None and closed.reason else "it was cut off"
        raise LostError(f"The connection to the command in {self.name!r} was lost: {why}.")


def _write(stream: TextIO, data: bytes) -> None:
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()
