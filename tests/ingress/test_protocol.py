"""Messages between cell and ingress over a pair of connected unix sockets."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from datum_compute.ingress.protocol import (
    FRAME_BYTES_MAX,
    BlockingLink,
    ControlLink,
    Drain,
    Drained,
    Hello,
    LinkClosed,
    Sockets,
    encode_frame,
)


@pytest.fixture
async def pair() -> AsyncIterator[tuple[ControlLink, socket.socket]]:
    """A link, and the socket at its other end."""
    near, far = socket.socketpair()
    near.setblocking(False)
    far.settimeout(60)
    link = ControlLink(*await asyncio.open_unix_connection(sock=near))
    yield link, far
    link.close()
    far.close()
    await asyncio.sleep(0)


async def test_a_message_is_received_as_it_was_sent(
    pair: tuple[ControlLink, socket.socket],
) -> None:
    link, far = pair
    hello = Hello("1", "cell", "state")
    far.sendall(encode_frame(hello))
    assert await link.receive() == hello
    assert link.peer_user == os.geteuid()


async def test_a_request_returns_the_reply_with_its_number(
    pair: tuple[ControlLink, socket.socket],
) -> None:
    link, far = pair
    receiving = asyncio.create_task(link.receive())
    requests = [
        asyncio.create_task(link.request(lambda number: Drain(number, "ns/web/1")))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    for number in (2, 1):
        far.sendall(encode_frame(Drained(number, 10 * number)))
    assert [await request for request in requests] == [Drained(1, 10), Drained(2, 20)]
    receiving.cancel()


async def test_a_request_fails_when_the_peer_disconnects(
    pair: tuple[ControlLink, socket.socket],
) -> None:
    link, far = pair
    receiving = asyncio.create_task(link.receive())
    request = asyncio.create_task(link.request(lambda number: Drain(number, "ns/web/1")))
    await asyncio.sleep(0)
    far.close()
    with pytest.raises(LinkClosed):
        await request
    with pytest.raises(LinkClosed):
        await receiving


@pytest.mark.parametrize(
    "content",
    [
        b"\0\0\0\2{}",
        b"\0\0\0\1{",
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b'\0\0\0\x0f{"type": "\xff\xff\xff"}',
    ],
)
async def test_something_else_than_a_message_ends_the_connection(
    pair: tuple[ControlLink, socket.socket], content: bytes
) -> None:
    link, far = pair
    far.sendall(content)
    with pytest.raises(LinkClosed):
        await link.receive()
    assert link.is_closed


async def test_listening_sockets_are_passed_to_another_process(
    pair: tuple[ControlLink, socket.socket],
) -> None:
    link, far = pair
    listening = socket.create_server(("127.0.0.1", 0))
    number = listening.getsockname()[1]
    far.sendall(b"")
    link.send(Hello("1", "successor"))
    await link.send_sockets([(number, listening)])
    listening.close()
    received = BlockingLink(far)
    assert received.receive() == Hello("1", "successor")
    assert received.receive() == Sockets((number,))
    with socket.create_connection(("127.0.0.1", number)) as client:
        accepted, address = received.sockets[number].accept()
        assert address == client.getsockname()
        accepted.close()
    received.close()
