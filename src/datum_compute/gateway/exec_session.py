"""A command under way: messages between a client's websocket and the session of a cell.

It ends when the command does, when the client goes, when the port stops, or when the caller would
no longer be let in: that is asked again every ``AGAIN_S``, with the same credentials. Who cannot be
asked for a while takes nobody's right away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from datum_compute.api.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from datum_compute.api.gateway import RESIZE
from datum_compute.client.transport.websocket import FAILED, GOING_AWAY, NORMAL, POLICY, WebSocket
from datum_compute.drivers.driver import DriverError
from datum_compute.drivers.queries import ExecSession

AGAIN_S = 1.0
# For so long a command goes on without an answer to that.
UNANSWERED_S = 30.0
PING_S = 20.0
# A client that says nothing at all for so long, not even to a ping, is gone.
SILENCE_S = 300.0

_log = logging.getLogger(__name__)


async def relay_exec(
    socket: WebSocket, session: ExecSession, still_allowed: Callable[[], Awaitable[None]]
) -> str:
    """Until it ends; why it did, in a word for the trail."""
    sizes: asyncio.Queue[bytes] = asyncio.Queue()
    parts = (
        _inward(socket, session, sizes),
        _resize(session, sizes),
        _outward(socket, session),
        _watch(socket, still_allowed),
    )
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = next(task for task in tasks if task.done())
        code, words = ended.result()
    except Exception:
        _log.exception("a command in an instance failed")
        code, words = FAILED, "the gateway failed; its log says why"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.shield(asyncio.ensure_future(session.aclose()))
    await socket.close(code, words)
    return {NORMAL: "Ended", POLICY: "AccessTakenAway", FAILED: "Failed"}.get(code, "ClientGone")


async def _inward(
    socket: WebSocket, session: ExecSession, sizes: asyncio.Queue[bytes]
) -> tuple[int, str]:
    while (message := await socket.receive()) is not None:
        if message[:1] == bytes((RESIZE,)):
            sizes.put_nowait(message)
        else:
            await session.send(message)
    return GOING_AWAY, ""


async def _resize(session: ExecSession, sizes: asyncio.Queue[bytes]) -> tuple[int, str]:
    """Beside what is typed: an engine takes its time for it, or does not answer at all while the
    process starts. Of many sizes only the last one counts."""
    while True:
        message = await sizes.get()
        while not sizes.empty():
            message = sizes.get_nowait()
        await session.send(message)


async def _outward(socket: WebSocket, session: ExecSession) -> tuple[int, str]:
    try:
        while (message := await session.receive()) is not None:
            await socket.send(message)
    except DriverError as error:
        return FAILED, str(error)
    return NORMAL, ""


async def _watch(
    socket: WebSocket, still_allowed: Callable[[], Awaitable[None]]
) -> tuple[int, str]:
    heard, silent_s, since_ping_s, unanswered_s = socket.heard, 0.0, 0.0, 0.0
    while True:
        await asyncio.sleep(AGAIN_S)
        try:
            await still_allowed()
            unanswered_s = 0.0
        except (Forbidden, NotFound, Unauthorized) as error:
            return POLICY, f"you may not be here any more: {error.reason}"
        except (ApiError, Unreachable):
            unanswered_s += AGAIN_S
            if unanswered_s >= UNANSWERED_S:
                return FAILED, f"for {UNANSWERED_S:.0f} s nobody could say whether you may be here"
        silent_s = 0.0 if socket.heard != heard else silent_s + AGAIN_S
        heard, since_ping_s = socket.heard, since_ping_s + AGAIN_S
        if silent_s >= SILENCE_S:
            return GOING_AWAY, f"nothing was heard for {SILENCE_S:.0f} s"
        if since_ping_s >= PING_S:
            since_ping_s = 0.0
            await socket.ping()
