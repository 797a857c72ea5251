"""A command under way ends for good reasons only, and says which."""

from __future__ import annotations

import asyncio
from random import Random

from datum_compute.api.errors import TooManyRequests, Unreachable
from datum_compute.api.gateway import ExecRequest
from datum_compute.client.transport.websocket import FAILED, WebSocket
from datum_compute.gateway.exec_session import AGAIN_S, UNANSWERED_S, relay_exec
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.gateway.made_up import Echo, connected


def ended(*answers: Exception | None) -> tuple[str, int, str]:
    """How a command ends whose caller's right is answered so, and well after that: the word of the
    trail, and what the client is told. The client goes after two minutes."""

    async def main(_: VirtualLoop) -> tuple[str, int, str]:
        mine, theirs = connected()
        left = list(answers)

        async def still_allowed() -> None:
            error = left.pop(0) if left else None
            if error is not None:
                raise error

        session = Echo(ExecRequest(command=["sh"]))
        talking = asyncio.create_task(
            relay_exec(WebSocket(theirs, of_server=True), session, still_allowed)
        )
        client = WebSocket(mine, of_server=False)
        try:
            async with asyncio.timeout(120):
                assert await client.receive() is None
        except TimeoutError:
            await client.close()
        told = client.closed
        return await talking, told.code if told else 0, told.reason if told else ""

    return run_virtual(Random(3), main)


def test_a_plane_that_is_away_for_a_while_ends_no_command() -> None:
    for error in (Unreachable("away"), TooManyRequests("later")):
        word, _, _ = ended(*[error] * (int(UNANSWERED_S / AGAIN_S) - 1), None)
        assert word == "ClientGone"


def test_nobody_stays_for_long_when_nobody_can_be_asked() -> None:
    word, code, reason = ended(*[Unreachable("away")] * 100)
    assert (word, code) == ("Failed", FAILED)
    assert reason == "for 30 s nobody could say whether you may be here"
