"""A command in a container: made and started by the engine, its streams as messages.

Engines have no way to end such a command; whoever loses its connection to it leaves it behind. So
the process is ended by ``kill_process``, which knows it by its number on this host.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from datum_compute.api.codec import JsonObject
from datum_compute.api.remotecommand import (
    CLOSE,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    Ending,
    ExecWish,
    ending_message,
    read_size,
)
from datum_compute.drivers.containers.engine import (
    Engine,
    EngineError,
    HijackedConnection,
    open_hijacked,
)
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.logs import FrameDecoder
from datum_compute.drivers.queries import NotRunning

# Process number on this host, container, and whether it is asked or made to end.
KillProcess = Callable[[int, str, bool], None]
# Between being asked to end and being ended.
GRACE_S = 2.0
_ASK_EVERY_S, _ASK_AT_MOST_EVERY_S = 0.02, 0.5
_RESIZE_TRIES, _RESIZE_PAUSE_S = 5, 0.05
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_WORDS = (
    ("executable file not found", NOT_FOUND),
    ("no such file or directory", NOT_FOUND),
    ("permission denied", NOT_EXECUTABLE),
)


async def start_exec(
    engine: Engine, container_id: str, wish: ExecWish, kill_process: KillProcess
) -> ContainerExecSession:
    """The command, running; or ended already, if there is no such command."""
    body = {
        "Cmd": wish.command,
        "AttachStdin": wish.stdin,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": wish.tty,
    }
    try:
        made = await engine.request("POST", f"/containers/{container_id}/exec", body=body)
    except EngineError as refusal:
        raise NotRunning(refusal.message) from None
    number = str(made["Id"])
    try:
        start = {"Detach": False, "Tty": wish.tty}
        streams = await open_hijacked(engine.socket, f"/exec/{number}/start", start)
    except EngineError as refusal:
        return ContainerExecSession(
            engine, number, container_id, None, kill_process, refused=refusal.message
        )
    return ContainerExecSession(
        engine, number, container_id, streams, kill_process, is_framed=not wish.tty
    )


class ContainerExecSession:
    """The ``ExecSession`` of a container."""

    def __init__(
        self,
        engine: Engine,
        number: str,
        container_id: str,
        streams: HijackedConnection | None,
        kill_process: KillProcess,
        *,
        is_framed: bool = True,
        refused: str = "",
    ) -> None:
        self._engine = engine
        self._number = number
        self._container_id = container_id
        self._streams = streams
        self._kill_process = kill_process
        self._frames = FrameDecoder() if is_framed else None
        self._ready: deque[bytes] = deque()
        self._has_ended = False
        if refused:
            self._refuse(refused)

    async def receive(self) -> bytes | None:
        while not self._ready:
            if self._has_ended or self._streams is None:
                return None
            data = await self._streams.read()
            if data:
                self._take(data)
            else:
                self._has_ended = True
                self._ready.append(ending_message(await self._ending()))
        return self._ready.popleft()

    async def send(self, message: bytes) -> None:
        if self._streams is None or not message:
            return
        channel, payload = message[0], message[1:]
        if channel == STDIN:
            await self._streams.write(payload)
        elif channel == CLOSE and payload == bytes((STDIN,)):
            self._streams.close_input()
        elif channel == RESIZE and (size := read_size(payload)) is not None:
            await self._resize(*size)

    async def aclose(self) -> None:
        if self._streams is not None:
            self._streams.close()
        if self._has_ended:
            return
        self._has_ended = True
        if await self._end(by_force=False):
            await asyncio.sleep(GRACE_S)
            await self._end(by_force=True)

    async def _end(self, *, by_force: bool) -> bool:
        """Whether there was still something to end."""
        try:
            found = await self._inspect()
        except DriverError:
            return False
        if not found.get("Running") or not found.get("Pid"):
            return False
        self._kill_process(int(found["Pid"]), self._container_id, by_force)
        return True

    def _take(self, data: bytes) -> None:
        if self._frames is None:
            self._ready.append(bytes((STDOUT,)) + data)
            return
        for stream, part, _ in self._frames.feed(data):
            self._ready.append(bytes((STDERR if stream == 2 else STDOUT,)) + part)

    def _refuse(self, words: str) -> None:
        """The engine did not start it: said as a shell says it."""
        code = next((code for told, code in _WORDS if told in words.lower()), None)
        ending = Ending(exit_code=code, message=words)
        self._ready += [bytes((STDERR,)) + f"{words}\n".encode(), ending_message(ending)]
        self._has_ended = True

    async def _ending(self) -> Ending:
        """Streams may end before their process does."""
        pause_s = _ASK_EVERY_S
        try:
            while (found := await self._inspect()).get("Running"):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _ASK_AT_MOST_EVERY_S)
        except (EngineError, TransientError) as error:
            return Ending(message=f"nobody knows how the command ended: {error}")
        return Ending(exit_code=int(found.get("ExitCode") or 0))

    async def _inspect(self) -> JsonObject:
        found: JsonObject = await self._engine.request("GET", f"/exec/{self._number}/json")
        return found

    async def _resize(self, columns: int, rows: int) -> None:
        """Refused for a moment while the process is being started."""
        for _ in range(_RESIZE_TRIES):
            try:
                query = {"h": rows, "w": columns}
                await self._engine.request("POST", f"/exec/{self._number}/resize", query)
            except DriverError:
                await asyncio.sleep(_RESIZE_PAUSE_S)
            else:
                return
