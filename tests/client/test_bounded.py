"""How many requests are under way at once over one transport, and which do not count."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.client.transport.interface import BoundedTransport

READ = Request("GET", "/a")
WATCH = Request("GET", "/a", {"watch": "1"})


class Held:
    """Answers when it is let, or fails."""

    def __init__(self) -> None:
        self.under_way: list[asyncio.Future[Response]] = []

    async def send(self, request: Request) -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.under_way.append(answer)
        return await answer


async def begun(transport: BoundedTransport, *requests: Request) -> list[asyncio.Task[Response]]:
    tasks = [asyncio.create_task(transport.send(request)) for request in requests]
    await settled()
    return tasks


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_only_so_many_requests_are_under_way_and_the_next_goes_when_one_is_answered() -> None:
    held = Held()
    tasks = await begun(BoundedTransport(held, concurrent_max=2), READ, READ, READ)
    assert len(held.under_way) == 2
    held.under_way[0].set_result(Response(200))
    await settled()
    assert tasks[0].done()
    assert len(held.under_way) == 3
    for answer in held.under_way[1:]:
        answer.set_result(Response(200))
    assert [response.status for response in await asyncio.gather(*tasks)] == [200] * 3


async def test_one_that_fails_or_is_given_up_lets_the_next_one_go() -> None:
    held = Held()
    transport = BoundedTransport(held, concurrent_max=1)
    failing, given_up, last = await begun(transport, READ, READ, READ)
    held.under_way[0].set_exception(Unreachable("nobody is there"))
    await settled()
    given_up.cancel()
    await settled()
    assert len(held.under_way) == 3
    held.under_way[2].set_result(Response(200))
    assert (await last).status == 200
    with pytest.raises(Unreachable):
        await failing


async def test_a_watch_needs_no_turn_and_takes_none() -> None:
    held = Held()
    transport = BoundedTransport(held, concurrent_max=1)
    tasks = await begun(transport, WATCH, READ, WATCH)
    assert len(held.under_way) == 3
    for answer in held.under_way:
        answer.set_result(Response(200))
    await asyncio.gather(*tasks)
