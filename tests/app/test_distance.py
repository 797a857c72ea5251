"""A plane that is far away, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from random import Random

from datum_compute.api.http import Request, Response
from datum_compute.client.transport.faults import DistantTransport
from testkit.sim.loop import VirtualLoop, run_virtual


class Plane:
    """A watch brings three lines, a tenth of a second apart."""

    async def send(self, request: Request) -> Response:
        return Response(200, stream=self._lines())

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        for number in range(3):
            await asyncio.sleep(0.1)
            yield str(number).encode()


def test_latency_delays_the_answer_and_every_event_and_not_their_pace() -> None:
    async def main(loop: VirtualLoop) -> list[tuple[float, bytes]]:
        response = await DistantTransport(Plane(), 1.0).send(Request("GET", "/api"))
        assert response.stream is not None
        seen = [(round(loop.time(), 2), line) async for line in response.stream]
        await response.stream.aclose()
        return seen

    assert run_virtual(Random(1), main) == [(2.1, b"0"), (2.2, b"1"), (2.3, b"2")]
