"""Exec sessions: they end with a reason, and survive short outages of access checks."""

from __future__ import annotations

import asyncio
from random import Random

from datum_compute.api.errors import TooManyRequests, Unreachable
from datum_compute.api.gateway import ExecRequest
from datum_compute.client.transport.websocket import FAILED, WebSocket
from datum_compute.gateway.exec_session import ACCESS_CHECK_S, ACCESS_CHECK_TIMEOUT_S, relay_exec
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.gateway.gateway_world import Echo, connect_in_memory


def run_session(*results: Exception | None) -> tuple[str, int, str]:
    """Run a session whose access checks have these results, and then succeed.

    The client disconnects after two minutes. Returns the reason for the audit log, and the code and
    reason that the client receives.
    """

    async def main(_: VirtualLoop) -> tuple[str, int, str]:
        mine, theirs = connect_in_memory()
        remaining = list(results)

        async def check_access() -> None:
            error = remaining.pop(0) if remaining else None
            if error is not None:
                raise error

        session = Echo(ExecRequest(command=["sh"]))
        relaying = asyncio.create_task(
            relay_exec(WebSocket(theirs, of_server=True), session, check_access)
        )
        client = WebSocket(mine, of_server=False)
        try:
            async with asyncio.timeout(120):
                assert await client.receive() is None
        except TimeoutError:
            await client.close()
        closed = client.closed
        return await relaying, closed.code if closed else 0, closed.reason if closed else ""

    return run_virtual(Random(3), main)


def test_a_session_survives_a_short_outage_of_the_plane() -> None:
    for error in (Unreachable("away"), TooManyRequests("later")):
        reason, _, _ = run_session(
            *[error] * (int(ACCESS_CHECK_TIMEOUT_S / ACCESS_CHECK_S) - 1), None
        )
        assert reason == "ClientGone"


def test_a_session_ends_when_access_cannot_be_checked_for_too_long() -> None:
    audited, code, reason = run_session(*[Unreachable("away")] * 100)
    assert (audited, code) == ("Failed", FAILED)
    assert reason == "your access could not be checked for 30 s"
