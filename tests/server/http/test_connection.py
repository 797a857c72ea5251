"""The order in which the connections of several users are served."""

from __future__ import annotations

import asyncio

from datum_compute.api.http import Request, Response
from datum_compute.server.encoding.list_body import WHOLE_BYTES_MAX
from datum_compute.server.http.response_writer import IMMEDIATE_PER_BATCH, STEPS_PER_PASS
from datum_compute.server.http.server import HttpServer
from testkit.api_server.running_server import START_S
from tests.server.http.wire import Wire, request

LARGE = WHOLE_BYTES_MAX + 1


class Front:
    """A server that identifies users by a header. Requests to /commit wait for ``committed``."""

    def __init__(self) -> None:
        self.committed = asyncio.Event()
        self.http = HttpServer(self.dispatch, lambda: START_S)

    async def dispatch(self, request: Request) -> Response:
        assert request.peer is not None
        request.peer.identify(request.headers["user"], reserved=False)
        if request.path == "/commit":
            await self.committed.wait()
        return Response(200, body=b"x" * (LARGE if request.path == "/large" else 1))

    async def connect(self, user: str) -> Wire:
        """Open a connection on which the user has already sent a request."""
        wire = Wire(self.http)
        wire.send(request_of(user))
        await wire.answer()
        return wire

    async def flood(self, connections: int = 10) -> list[Wire]:
        """Let one user send requests that wait, over several connections."""
        wires = [await self.connect("ann") for _ in range(connections)]
        for wire in wires:
            wire.send(request_of("ann", "/commit"))
        await wires[0].settled()
        return wires


def request_of(user: str, path: str = "/") -> bytes:
    return request(target=path, headers={"User": user})


def has_answers(wire: Wire, count: int) -> bool:
    return len(wire.answers) == count and wire.answers[-1].complete


async def test_a_request_of_an_idle_user_is_answered_before_the_batch_of_a_flood() -> None:
    front = Front()
    own = await front.connect("bob")
    waiting, sending = await front.flood(), await front.connect("ann")
    sending.send(request_of("ann"))
    own.send(request_of("bob"))
    # The event loop has not run in between.
    assert has_answers(own, 2)
    assert has_answers(sending, 1)
    await sending.answer(1)
    front.committed.set()
    for wire in waiting:
        assert (await wire.answer(1)).status == 200


async def test_a_request_waits_for_the_batch_while_no_other_user_has_unfinished_requests() -> None:
    front = Front()
    wires = await front.flood()
    same_user, other_user = await front.connect("ann"), await front.connect("bob")
    same_user.send(request_of("ann"))
    assert has_answers(same_user, 1)
    front.committed.set()
    for wire in wires:
        await wire.answer(1)
    other_user.send(request_of("bob"))
    assert has_answers(other_user, 1)
    await other_user.answer(1)


async def test_a_limited_number_of_requests_is_served_before_each_batch() -> None:
    front = Front()
    crowd = [await front.connect(f"user-{number}") for number in range(2 * IMMEDIATE_PER_BATCH)]
    await front.flood()
    for answers in (2, 3):
        for wire in crowd:
            wire.send(request_of(f"user-{crowd.index(wire)}"))
        assert sum(has_answers(wire, answers) for wire in crowd) == IMMEDIATE_PER_BATCH
        for wire in crowd:
            await wire.answer(answers - 1)


async def test_a_large_response_is_unfinished_until_it_is_sent() -> None:
    front = Front()
    reader, own = await front.connect("ann"), await front.connect("bob")
    reader.takes = False
    reader.send(request_of("ann", "/large"))
    await reader.settled()
    own.send(request_of("bob"))
    assert has_answers(own, 2)
    reader.take()
    await reader.answer(1)
    await reader.settled()
    own.send(request_of("bob"))
    assert has_answers(own, 2)
    await own.answer(2)


async def test_requests_of_clients_that_disconnected_do_not_stay_unfinished() -> None:
    front = Front()
    own = await front.connect("bob")
    wires = await front.flood()
    for wire in wires:
        wire.abort()
    front.committed.set()
    await own.settled()
    own.send(request_of("bob"))
    assert has_answers(own, 1)
    await own.answer(1)


async def test_the_response_of_a_user_is_not_behind_the_responses_of_a_flood() -> None:
    front = Front()
    flood, own = await front.flood(3 * STEPS_PER_PASS), await front.connect("bob")
    own.send(request_of("bob", "/commit"))
    await own.settled()
    finished: list[int] = []

    def note_finished() -> None:
        finished.append(sum(has_answers(wire, 2) for wire in flood))
        if not has_answers(own, 2):
            asyncio.get_running_loop().call_soon(note_finished)

    front.committed.set()
    note_finished()
    await own.answer(1)
    assert finished[-1] <= STEPS_PER_PASS
    for wire in flood:
        assert (await wire.answer(1)).status == 200


async def test_a_connection_is_not_read_while_its_user_has_more_requests_than_a_pass_serves() -> (
    None
):
    front = Front()
    crowd = [await front.connect("ann") for _ in range(2 * STEPS_PER_PASS)]
    for wire in crowd:
        wire.send(request_of("ann"))
    first, last = crowd[0], crowd[-1]
    await asyncio.sleep(0)
    assert (has_answers(first, 2), has_answers(last, 2)) == (True, False)
    last.send(request_of("ann"))
    assert not last.is_reading()
    assert (await last.answer(1)).status == (await last.answer(2)).status == 200
    assert last.is_reading()
