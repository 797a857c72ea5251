"""A transport that injects faults, to test how a platform handles unreachable and slow planes.

Faults are encoded as a JSON object by plane: one process writes them to a file, another reads it.

- ``cut``: a network partition. The request gets no response and fails after CUT_TIMEOUT_S.
- ``crash``: no process listens. The request fails at once.
- ``slow``: every response and every watch event is delayed.

During ``cut`` and ``crash``, an open watch fails at its next event.
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

# How long a request to a plane with the fault ``cut`` waits before it fails.
CUT_TIMEOUT_S = 5.0

Kind = Literal["cut", "slow", "crash"]


class Fault(ApiStruct, frozen=True, kw_only=True):
    kind: Kind
    delay_s: float = 0.0
    until_s: float | None = None  # Unix time; None: until the fault is removed

    def is_active(self, unix_s: float) -> bool:
        return self.until_s is None or unix_s < self.until_s


FaultsByPlane = dict[str, Fault]


def encode_faults(faults: Mapping[str, Fault]) -> bytes:
    return encode({plane: msgspec.to_builtins(faults[plane]) for plane in sorted(faults)})


def decode_faults(text: bytes) -> FaultsByPlane:
    """Decode the faults by plane. Raise DecodeError if they are invalid."""
    return decode_as(text, dict[str, Fault])


class FaultyTransport:
    """Injects the fault that ``fault`` returns for each request."""

    def __init__(self, inner: Transport, fault: Callable[[], Fault | None]) -> None:
        self._inner = inner
        self._fault = fault

    async def send(self, request: Request) -> Response:
        fault = self._fault()
        if fault is not None:
            await _fail(fault, CUT_TIMEOUT_S)
            await asyncio.sleep(fault.delay_s)
        response = await self._inner.send(request)
        if response.stream is None:
            return response
        return replace(response, stream=FaultyStream(response.stream, self._fault))


async def _fail(fault: Fault, timeout_s: float) -> None:
    if fault.kind == "cut":
        await asyncio.sleep(timeout_s)
        raise Unreachable("timeout: injected fault 'cut'")
    if fault.kind == "crash":
        raise Unreachable("connection refused: injected fault 'crash'")


class FaultyStream:
    """Injects the current fault before each event of a watch."""

    def __init__(self, inner: ByteStream, fault: Callable[[], Fault | None]) -> None:
        self._inner = inner
        self._fault = fault

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        line = await self._inner.__anext__()
        fault = self._fault()
        if fault is not None:
            await _fail(fault, 0.0)
            await asyncio.sleep(fault.delay_s)
        return line

    async def aclose(self) -> None:
        await self._inner.aclose()
