"""Exec session: forwards messages between the websocket of a client and the session of a cell.

It ends when the command ends, the client disconnects, the port stops, or the caller loses access.
Access is checked every ``ACCESS_CHECK_S`` with the same credentials. If the check gets no response,
the session continues for ``ACCESS_CHECK_TIMEOUT_S``.
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

ACCESS_CHECK_S = 1.0
ACCESS_CHECK_TIMEOUT_S = 30.0
PING_S = 20.0
# A client that sends nothing for this long, not even a pong, is disconnected.
CLIENT_TIMEOUT_S = 300.0

_log = logging.getLogger(__name__)


async def relay_exec(
    socket: WebSocket, session: ExecSession, check_access: Callable[[], Awaitable[None]]
) -> str:
    """Forward messages until the session ends. Return the reason for the audit log."""
    sizes: asyncio.Queue[bytes] = asyncio.Queue()
    parts = (
        _forward_input(socket, session, sizes),
        _forward_resizes(session, sizes),
        _forward_output(socket, session),
        _monitor(socket, check_access),
    )
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        done = next(task for task in tasks if task.done())
        code, message = done.result()
    except Exception:
        _log.exception("a command in an instance failed")
        code, message = FAILED, "the gateway failed; its log has details"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.shield(asyncio.ensure_future(session.aclose()))
    await socket.close(code, message)
    return {NORMAL: "Ended", POLICY: "AccessTakenAway", FAILED: "Failed"}.get(code, "ClientGone")


async def _forward_input(
    socket: WebSocket, session: ExecSession, sizes: asyncio.Queue[bytes]
) -> tuple[int, str]:
    while (message := await socket.receive()) is not None:
        if message[:1] == bytes((RESIZE,)):
            sizes.put_nowait(message)
        else:
            await session.send(message)
    return GOING_AWAY, ""


async def _forward_resizes(session: ExecSession, sizes: asyncio.Queue[bytes]) -> tuple[int, str]:
    """Forward the latest size of the terminal.

    This is a task of its own, because an engine can take long to resize, or does not respond while
    the process starts. Input must not wait for that.
    """
    while True:
        message = await sizes.get()
        while not sizes.empty():
            message = sizes.get_nowait()
        await session.send(message)


async def _forward_output(socket: WebSocket, session: ExecSession) -> tuple[int, str]:
    try:
        while (message := await session.receive()) is not None:
            await socket.send(message)
    except DriverError as error:
        return FAILED, str(error)
    return NORMAL, ""


async def _monitor(
    socket: WebSocket, check_access: Callable[[], Awaitable[None]]
) -> tuple[int, str]:
    """Check access, ping the client, and return when the session must end."""
    reads, idle_s, since_ping_s, unchecked_s = socket.read_count, 0.0, 0.0, 0.0
    while True:
        await asyncio.sleep(ACCESS_CHECK_S)
        try:
            await check_access()
            unchecked_s = 0.0
        except (Forbidden, NotFound, Unauthorized) as error:
            return POLICY, f"you have no access to this instance any more: {error.reason}"
        except (ApiError, Unreachable):
            unchecked_s += ACCESS_CHECK_S
            if unchecked_s >= ACCESS_CHECK_TIMEOUT_S:
                limit_s = f"{ACCESS_CHECK_TIMEOUT_S:.0f} s"
                return FAILED, f"your access could not be checked for {limit_s}"
        idle_s = 0.0 if socket.read_count != reads else idle_s + ACCESS_CHECK_S
        reads, since_ping_s = socket.read_count, since_ping_s + ACCESS_CHECK_S
        if idle_s >= CLIENT_TIMEOUT_S:
            return GOING_AWAY, f"the client sent nothing for {CLIENT_TIMEOUT_S:.0f} s"
        if since_ping_s >= PING_S:
            since_ping_s = 0.0
            await socket.ping()
