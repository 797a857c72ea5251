"""Injected faults of a transport, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from random import Random
from typing import TypeVar

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.client.transport.faults import (
    CUT_TIMEOUT_S,
    Fault,
    FaultyTransport,
    decode_faults,
    encode_faults,
)
from testkit.sim.loop import VirtualLoop, run_virtual

T = TypeVar("T")
REQUEST = Request("GET", "/api")


class HealthyTransport:
    """Responds at once. A watch sends three lines, one per second."""

    async def send(self, request: Request) -> Response:
        if request.query:
            return Response(200, stream=self._lines())
        return Response(200, b"{}")

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        for number in range(3):
            await asyncio.sleep(1)
            yield str(number).encode()


def in_virtual_time(story: Callable[[], Awaitable[T]]) -> T:
    async def main(_loop: VirtualLoop) -> T:
        return await story()

    return run_virtual(Random(1), main)


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(("kind", "after_s"), [("cut", CUT_TIMEOUT_S), ("crash", 0.0)])
def test_a_cut_transport_times_out_and_a_crashed_one_refuses_connections(
    kind: str, after_s: float
) -> None:
    async def story() -> float:
        fault = Fault(kind=kind)  # type: ignore[arg-type]
        began_s = now_s()
        with pytest.raises(Unreachable):
            await FaultyTransport(HealthyTransport(), lambda: fault).send(REQUEST)
        return now_s() - began_s

    assert in_virtual_time(story) == after_s


def test_a_slow_transport_delays_the_response() -> None:
    async def story() -> float:
        began_s = now_s()
        slow = FaultyTransport(HealthyTransport(), lambda: Fault(kind="slow", delay_s=0.5))
        assert (await slow.send(REQUEST)).status == 200
        return round(now_s() - began_s, 3)

    assert in_virtual_time(story) == 0.5


def test_an_open_watch_breaks_when_the_transport_is_cut() -> None:
    async def story() -> list[bytes]:
        faults: list[Fault] = []
        transport = FaultyTransport(HealthyTransport(), lambda: faults[0] if faults else None)
        stream = (await transport.send(Request("GET", "/api", {"watch": "1"}))).stream
        assert stream is not None
        seen = [await anext(stream)]
        faults.append(Fault(kind="cut"))
        with pytest.raises(Unreachable):
            await anext(stream)
        await stream.aclose()
        return seen

    assert in_virtual_time(story) == [b"0"]


def test_decoded_faults_equal_the_encoded_ones() -> None:
    faults = {"hub": Fault(kind="slow", delay_s=0.5), "cell/dfw": Fault(kind="cut")}
    assert decode_faults(encode_faults(faults)) == faults
    assert Fault(kind="cut", until_s=10.0).is_active(9.0)
    assert not Fault(kind="cut", until_s=10.0).is_active(10.0)
