"""The limit of concurrent requests of a transport, which does not include watches."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.client.transport.interface import BoundedTransport

READ = Request("GET", "/a")
WATCH = Request("GET", "/a", {"watch": "1"})


class PendingTransport:
    """Keeps requests pending until the test sets their responses."""

    def __init__(self) -> None:
        self.responses: list[asyncio.Future[Response]] = []

    async def send(self, request: Request) -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.responses.append(answer)
        return await answer


async def start_requests(
    transport: BoundedTransport, *requests: Request
) -> list[asyncio.Task[Response]]:
    tasks = [asyncio.create_task(transport.send(request)) for request in requests]
    await run_callbacks()
    return tasks


async def run_callbacks() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_beyond_the_limit_is_sent_after_the_next_response() -> None:
    pending = PendingTransport()
    tasks = await start_requests(BoundedTransport(pending, concurrent_max=2), READ, READ, READ)
    assert len(pending.responses) == 2
    pending.responses[0].set_result(Response(200))
    await run_callbacks()
    assert tasks[0].done()
    assert len(pending.responses) == 3
    for answer in pending.responses[1:]:
        answer.set_result(Response(200))
    assert [response.status for response in await asyncio.gather(*tasks)] == [200] * 3


async def test_a_failed_or_cancelled_request_frees_its_slot() -> None:
    pending = PendingTransport()
    transport = BoundedTransport(pending, concurrent_max=1)
    failing, cancelled, last = await start_requests(transport, READ, READ, READ)
    pending.responses[0].set_exception(Unreachable("connection refused"))
    await run_callbacks()
    cancelled.cancel()
    await run_callbacks()
    assert len(pending.responses) == 3
    pending.responses[2].set_result(Response(200))
    assert (await last).status == 200
    with pytest.raises(Unreachable):
        await failing


async def test_watches_do_not_count_as_concurrent_requests() -> None:
    pending = PendingTransport()
    transport = BoundedTransport(pending, concurrent_max=1)
    tasks = await start_requests(transport, WATCH, READ, WATCH)
    assert len(pending.responses) == 3
    for answer in pending.responses:
        answer.set_result(Response(200))
    await asyncio.gather(*tasks)
