"""Exec sessions: a command that the engine runs in a container, with its streams as messages.

Engines cannot end such a command, and a lost connection leaves it running. ``kill_process``
therefore ends it by its process id on this host.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from datum_compute.api.gateway import (
    CLOSE,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    ExecRequest,
    ExecResult,
    encode_exec_result,
    read_size,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.client.transport.http1 import RawConnection
from datum_compute.drivers.containers.engine import (
    Engine,
    EngineError,
)
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.engine_errors import start_error_code
from datum_compute.drivers.logs import FrameDecoder
from datum_compute.drivers.queries import NotRunning

# Process id on this host, container id, and whether to kill the process (else to terminate it).
KillProcess = Callable[[int, str, bool], None]
GRACE_S = 2.0  # between terminating and killing it
_EXIT_POLL_MIN_S, _EXIT_POLL_MAX_S = 0.02, 0.5
_RESIZE_ATTEMPTS, _RESIZE_RETRY_S = 5, 0.05


async def start_exec(
    engine: Engine, container_id: str, request: ExecRequest, kill_process: KillProcess
) -> ContainerExecSession:
    """Start the command. The session has ended already if the command cannot be started."""
    body = {
        "Cmd": request.command,
        "AttachStdin": request.stdin,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": request.tty,
    }
    try:
        created = await engine.request("POST", f"/containers/{container_id}/exec", body=body)
    except EngineError as error:
        raise NotRunning(error.message) from None
    exec_id = str(created["Id"])
    try:
        start = {"Detach": False, "Tty": request.tty}
        connection = await engine.upgrade(f"/exec/{exec_id}/start", start)
    except EngineError as error:
        return ContainerExecSession(
            engine, exec_id, container_id, None, kill_process, start_error=error.message
        )
    return ContainerExecSession(
        engine, exec_id, container_id, connection, kill_process, is_framed=not request.tty
    )


class ContainerExecSession:
    """The `ExecSession` of a container. ``connection`` is None if the command was not started."""

    def __init__(
        self,
        engine: Engine,
        exec_id: str,
        container_id: str,
        connection: RawConnection | None,
        kill_process: KillProcess,
        *,
        is_framed: bool = True,
        start_error: str = "",
    ) -> None:
        self._engine = engine
        self._exec_id = exec_id
        self._container_id = container_id
        self._connection = connection
        self._kill_process = kill_process
        self._frames = FrameDecoder() if is_framed else None
        self._messages: deque[bytes] = deque()
        self._has_ended = False
        if start_error:
            self._report_start_error(start_error)

    async def receive(self) -> bytes | None:
        while not self._messages:
            if self._has_ended or self._connection is None:
                return None
            data = await self._connection.read()
            if data:
                self._add_output(data)
            else:
                self._has_ended = True
                self._messages.append(encode_exec_result(await self._read_ending()))
        return self._messages.popleft()

    async def send(self, message: bytes) -> None:
        if self._connection is None or not message:
            return
        channel, payload = message[0], message[1:]
        if channel == STDIN:
            await self._connection.write(payload)
        elif channel == CLOSE and payload == bytes((STDIN,)):
            self._connection.close_input()
        elif channel == RESIZE and (size := read_size(payload)) is not None:
            await self._resize(*size)

    async def aclose(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._has_ended:
            return
        self._has_ended = True
        if await self._end_process(by_force=False):
            await asyncio.sleep(GRACE_S)
            await self._end_process(by_force=True)

    async def _end_process(self, *, by_force: bool) -> bool:
        """Return whether the process was still running."""
        try:
            found = await self._inspect()
        except DriverError:
            return False
        if not found.get("Running") or not found.get("Pid"):
            return False
        self._kill_process(int(found["Pid"]), self._container_id, by_force)
        return True

    def _add_output(self, data: bytes) -> None:
        if self._frames is None:
            self._messages.append(bytes((STDOUT,)) + data)
            return
        for stream, part, _ in self._frames.feed(data):
            self._messages.append(bytes((STDERR if stream == 2 else STDOUT,)) + part)

    def _report_start_error(self, message: str) -> None:
        """Report the error like a shell: on stderr, and with its exit code."""
        ending = ExecResult(exit_code=start_error_code(message), message=message)
        self._messages += [bytes((STDERR,)) + f"{message}\n".encode(), encode_exec_result(ending)]
        self._has_ended = True

    async def _read_ending(self) -> ExecResult:
        """Return the exit code, once the process has ended: its streams may end before it."""
        pause_s = _EXIT_POLL_MIN_S
        try:
            while (found := await self._inspect()).get("Running"):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _EXIT_POLL_MAX_S)
        except (EngineError, TransientError) as error:
            return ExecResult(message=f"the exit code of the command is unknown: {error}")
        return ExecResult(exit_code=int(found.get("ExitCode") or 0))

    async def _inspect(self) -> JsonObject:
        found: JsonObject = await self._engine.request("GET", f"/exec/{self._exec_id}/json")
        return found

    async def _resize(self, columns: int, rows: int) -> None:
        """Resize the terminal. The engine refuses that until the process has started."""
        for _ in range(_RESIZE_ATTEMPTS):
            try:
                query = {"h": rows, "w": columns}
                await self._engine.request("POST", f"/exec/{self._exec_id}/resize", query)
            except DriverError:
                await asyncio.sleep(_RESIZE_RETRY_S)
            else:
                return
