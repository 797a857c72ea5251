"""A transport that can be put in trouble: cut off, slow, or as after a crash.

For trying out what a platform does when planes cannot be reached. What is wrong with which plane is
a value that can be written down and read again, so that one process can tell another.

- ``cut``: no answer comes, as with a cable that was pulled; the caller waits and gives up.
- ``crash``: refused at once, as by a process that has died.
- ``slow``: every answer and every event of a watch takes so much longer.
Watches that are open break with the first event that would have come.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import ByteStream, Request, Response
from datum_compute.api.meta.codec import ApiStruct, decode_as, encode
from datum_compute.client.transport.interface import Transport

# As long as a patient caller waits for an answer that does not come.
GIVE_UP_S = 5.0

Kind = Literal["cut", "slow", "crash"]


class Fault(ApiStruct, frozen=True, kw_only=True):
    kind: Kind
    delay_s: float = 0.0
    until_s: float | None = None  # in Unix time; for ever without

    def lasts(self, unix_s: float) -> bool:
        return self.until_s is None or unix_s < self.until_s


Troubles = dict[str, Fault]  # by plane


def encoded_troubles(troubles: Mapping[str, Fault]) -> bytes:
    return encode({plane: msgspec.to_builtins(troubles[plane]) for plane in sorted(troubles)})


def decoded_troubles(text: bytes) -> Troubles:
    """Raises DecodeError."""
    return decode_as(text, dict[str, Fault])


class FaultyTransport:
    """``trouble`` answers what is wrong now."""

    def __init__(self, inner: Transport, trouble: Callable[[], Fault | None]) -> None:
        self._inner = inner
        self._trouble = trouble

    async def send(self, request: Request) -> Response:
        trouble = self._trouble()
        if trouble is not None:
            await _refuse(trouble, GIVE_UP_S)
            await asyncio.sleep(trouble.delay_s)
        response = await self._inner.send(request)
        if response.stream is None:
            return response
        return replace(response, stream=FaultyStream(response.stream, self._trouble))


async def _refuse(trouble: Fault, give_up_s: float) -> None:
    if trouble.kind == "cut":
        await asyncio.sleep(give_up_s)
        raise Unreachable("no answer came: the plane is cut off on purpose")
    if trouble.kind == "crash":
        raise Unreachable("refused: the plane has crashed on purpose")


class FaultyStream:
    def __init__(self, inner: ByteStream, trouble: Callable[[], Fault | None]) -> None:
        self._inner = inner
        self._trouble = trouble

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        line = await self._inner.__anext__()
        trouble = self._trouble()
        if trouble is not None:
            await _refuse(trouble, 0.0)
            await asyncio.sleep(trouble.delay_s)
        return line

    async def aclose(self) -> None:
        await self._inner.aclose()
