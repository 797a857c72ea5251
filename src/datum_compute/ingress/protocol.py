"""Messages between the process of a cell and the ingress, and between two versions of the ingress.

The messages are sent over a unix socket. A frame is the length of the content in 4 bytes, followed
by the content: a JSON object whose ``type`` names the message. Each connection starts with
``Hello`` and ``Welcome``. The fields of these two do not change between versions, so that a newer
ingress can replace an older one.

The owner of a port is the deployment that it leads to (``api.traffic.owner_name``). The cell sends
all owners after each connect, and then each owner that changes. A reply contains the number of its
request. Only the cell calls drivers: the ingress requests that it wakes a machine, and the cell
requests a confirmation before it puts a machine to sleep.
"""

from __future__ import annotations

import array
import asyncio
import socket
import struct
from collections.abc import Callable, Sequence
from itertools import count
from typing import Literal

import msgspec
from msgspec import Struct

from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import Backend, WakeTimes

FRAME_BYTES_MAX = 64 * 1024 * 1024
# A peer that does not read its messages is disconnected.
UNSENT_BYTES_MAX = 64 * 1024 * 1024
REQUEST_TIMEOUT_S = 10.0
# The kernel passes at most 253 descriptors with one message.
DESCRIPTORS_MAX = 200

_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")  # process, user and group


# --- Start of a connection


class Hello(Struct, frozen=True, tag_field="type", tag="hello"):
    """``client`` identifies the cell process across restarts. It runs ``cells``."""

    version: str
    role: Literal["cell", "successor"]
    client: str = ""
    cells: tuple[PlaneName, ...] = ()


class Welcome(Struct, frozen=True, tag_field="type", tag="welcome"):
    """``owners`` are those of the ports that the client has published."""

    version: str
    pid: int
    owners: tuple[str, ...] = ()


# --- From the cell


class DesiredPort(Struct, frozen=True):
    """``last_port`` is the port number to use again; 0 if any free one may be used."""

    backends: tuple[Backend, ...] = ()
    last_port: int = 0


class DesiredOwner(Struct, frozen=True):
    """The ports of an owner. Open ports named in ``kept`` stay as they are; others are closed.

    If ``refused`` is set, the ports refuse connections, because the deployment is stopped.
    """

    owner: str
    refused: bool = False
    ports: dict[str, DesiredPort] = {}
    kept: tuple[str, ...] = ()


class Publish(Struct, frozen=True, tag_field="type", tag="publish"):
    """``draining`` are all machines that get no new connections; None means no change."""

    number: int
    owners: tuple[DesiredOwner, ...]
    draining: tuple[str, ...] | None = None


class Published(Struct, frozen=True, tag_field="type", tag="published"):
    """``ports`` are the port numbers by owner and name. ``problem`` is set if some are missing."""

    number: int
    ports: dict[str, dict[str, int]]
    problem: str = ""


class Drain(Struct, frozen=True, tag_field="type", tag="drain"):
    number: int
    machine_id: str


class Drained(Struct, frozen=True, tag_field="type", tag="drained"):
    number: int
    connections: int


class EndDrain(Struct, frozen=True, tag_field="type", tag="end_drain"):
    machine_id: str


class ConfirmIdle(Struct, frozen=True, tag_field="type", tag="confirm_idle"):
    """The cell is about to put the machine to sleep.

    The ingress denies this if the machine has connections, or had one within ``idle_s``. Otherwise
    it sends a connection to the machine only after a wake.
    """

    number: int
    machine_id: str
    idle_s: float


class IdleConfirmed(Struct, frozen=True, tag_field="type", tag="idle_confirmed"):
    number: int
    is_idle: bool


# --- From the ingress


class WakeMachine(Struct, frozen=True, tag_field="type", tag="wake"):
    number: int
    backend: Backend
    arrived_s: float


class Woken(Struct, frozen=True, tag_field="type", tag="woken"):
    """The machine is awake unless ``failure`` is set. ``times`` is None if it was awake already."""

    number: int
    times: WakeTimes | None = None
    failure: str = ""


class CheckReady(Struct, frozen=True, tag_field="type", tag="check_ready"):
    number: int
    cell: PlaneName
    machine_id: str


class ReadyChecked(Struct, frozen=True, tag_field="type", tag="ready_checked"):
    """``failure`` is set if the machine will not become ready."""

    number: int
    is_ready: bool = False
    failure: str = ""


class WakeEnded(Struct, frozen=True, tag_field="type", tag="wake_ended"):
    """A wake is complete: the woken machine sent its first byte, or did not serve (``failure``)."""

    times: WakeTimes
    failure: str = ""


class OpenConnections(Struct, frozen=True):
    count: int
    idle_since_s: float


class ActivityReport(Struct, frozen=True, tag_field="type", tag="activity"):
    machines: dict[str, OpenConnections]


# --- Between the running ingress and its successor


class TakeOver(Struct, frozen=True, tag_field="type", tag="take_over"):
    """The successor requests the listening sockets and the configuration."""


class Sockets(Struct, frozen=True, tag_field="type", tag="sockets"):
    """The port numbers of the listening sockets that are attached to this message."""

    numbers: tuple[int, ...]


class HandedOver(Struct, frozen=True, tag_field="type", tag="handed_over"):
    """All sockets were sent. The descriptor of the locked file is attached."""

    configuration: bytes
    draining: tuple[str, ...]


class TakenOver(Struct, frozen=True, tag_field="type", tag="taken_over"):
    """The successor accepts connections."""


class Stop(Struct, frozen=True, tag_field="type", tag="stop"):
    """The successor stops. Its predecessor closes its open connections and stops too."""


Message = (
    Hello
    | Welcome
    | Publish
    | Published
    | Drain
    | Drained
    | EndDrain
    | ConfirmIdle
    | IdleConfirmed
    | WakeMachine
    | Woken
    | CheckReady
    | ReadyChecked
    | WakeEnded
    | ActivityReport
    | TakeOver
    | Sockets
    | HandedOver
    | TakenOver
    | Stop
)
Reply = Published | Drained | IdleConfirmed | Woken | ReadyChecked

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


class LinkClosed(Exception):
    """The peer closed the connection, or sent something that is not a message."""


def encode_frame(message: Message) -> bytes:
    content = _encode(message)
    return _LENGTH.pack(len(content)) + content


def decode_content(content: bytes) -> Message:
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LinkClosed(f"unknown message: {error}") from error


def peer_user(connection: socket.socket) -> int:
    """Return the user id of the process at the other end of a unix socket."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(found)[1])


class ControlLink:
    """A connection over which both sides send messages and requests, which get a reply."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = count(1)

    @property
    def peer_user(self) -> int:
        return peer_user(self._writer.get_extra_info("socket"))

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing()

    def send(self, message: Message) -> None:
        if self._writer.is_closing():
            return
        if self._writer.transport.get_write_buffer_size() > UNSENT_BYTES_MAX:
            self.close()
            return
        self._writer.write(encode_frame(message))

    async def request(
        self, build: Callable[[int], Message], timeout_s: float = REQUEST_TIMEOUT_S
    ) -> Reply:
        """Send a request and return the reply. ``build`` returns the message with this number.

        Another task must call ``receive``. Raises LinkClosed or TimeoutError.
        """
        if self._writer.is_closing():
            raise LinkClosed("the connection is closed")
        number = next(self._numbers)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            self.send(build(number))
            async with asyncio.timeout(timeout_s):
                return await reply
        finally:
            del self._replies[number]

    async def receive(self) -> Message:
        """Return the next message that is not a reply. Raise LinkClosed at the end."""
        try:
            while True:
                (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
                if length > FRAME_BYTES_MAX:
                    raise LinkClosed(f"a message of {length} bytes is too long")
                message = decode_content(await self._reader.readexactly(length))
                if not isinstance(message, Reply):
                    return message
                waiting = self._replies.get(message.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        except (asyncio.IncompleteReadError, OSError) as error:
            self.close()
            raise LinkClosed("the connection was closed") from error
        except LinkClosed:
            self.close()
            raise

    async def send_sockets(self, sockets: Sequence[tuple[int, socket.socket]]) -> None:
        """Send listening sockets with their port numbers."""
        for start in range(0, len(sockets), DESCRIPTORS_MAX):
            part = sockets[start : start + DESCRIPTORS_MAX]
            numbers = tuple(number for number, _ in part)
            await self.send_with_descriptors(
                Sockets(numbers), [listening.fileno() for _, listening in part]
            )

    async def send_with_descriptors(self, message: Message, descriptors: Sequence[int]) -> None:
        """Send a message with descriptors of files or sockets, after all previous messages.

        asyncio cannot send descriptors, so this writes to the socket when the buffer is empty.
        """
        transport = self._writer.transport
        transport.set_write_buffer_limits(high=0)
        await self._writer.drain()
        duplicate = socket.dup(transport.get_extra_info("socket").fileno())
        with socket.socket(fileno=duplicate) as raw:
            raw.setblocking(False)
            await _send_with_descriptors(raw, encode_frame(message), array.array("i", descriptors))

    def close(self) -> None:
        self._writer.close()
        for waiting in self._replies.values():
            if not waiting.done():
                waiting.set_exception(LinkClosed("the connection was closed"))


async def _send_with_descriptors(
    raw: socket.socket, frame: bytes, descriptors: array.array[int]
) -> None:
    """Attach the descriptors to the first byte; the rest of the frame follows without any."""
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)]
    while frame:
        try:
            sent = raw.sendmsg([frame], ancillary)
        except BlockingIOError:
            await asyncio.sleep(0.01)
            continue
        frame, ancillary = frame[sent:], []


# --- The connection of a successor, before its event loop runs


class BlockingLink:
    """Receives messages, the listening sockets and the locked file from the running ingress."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.sockets: dict[int, socket.socket] = {}
        self.lock = -1

    def send(self, message: Message) -> None:
        self.connection.sendall(encode_frame(message))

    def receive(self) -> Message:
        """Return the next message. Received sockets are added to ``sockets``."""
        descriptors: list[int] = []
        header = self._read(_LENGTH.size, descriptors)
        message = decode_content(self._read(_LENGTH.unpack(header)[0], descriptors))
        if isinstance(message, Sockets):
            found = [socket.socket(fileno=descriptor) for descriptor in descriptors]
            self.sockets |= dict(zip(message.numbers, found, strict=True))
        elif isinstance(message, HandedOver):
            (self.lock,) = descriptors
        return message

    def close(self) -> None:
        for found in (self.connection, *self.sockets.values()):
            found.close()

    def _read(self, size: int, descriptors: list[int]) -> bytes:
        content = b""
        space = socket.CMSG_SPACE(DESCRIPTORS_MAX * array.array("i").itemsize)
        while len(content) < size:
            part, ancillary, _, _ = self.connection.recvmsg(
                size - len(content), space, socket.MSG_CMSG_CLOEXEC
            )
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(data[: len(data) - len(data) % received.itemsize])
                    descriptors.extend(received)
            if not part:
                raise LinkClosed("the connection was closed")
            content += part
        return content
