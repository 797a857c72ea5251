"""The floor under controllers: a bare client that makes the writes they made, and nothing else.

What was recorded is sent again, to a platform of its own that is durable as well, object by object
and many objects at once: in the same process, where it is no more than calls, or over TLS to
another one, as every other client has to. Versions and uids in a body are those of the first run;
each is replaced by what the second run answered, which is what any client has to do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.instance_world import Recorded, served
from bench.plainserver import plain_server, reached
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.app.environment import real_ports
from datum_compute.app.platform import BOOTSTRAP, Platform
from datum_compute.app.process import settle_memory
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.interface import Transport

AT_ONCE = 64
CONNECTIONS = 32
_SUBRESOURCE = "/status"


@dataclass(slots=True)
class _Chain:
    """The writes of one object, in their order, and what is known of it on the way."""

    writes: list[Recorded] = field(default_factory=list)
    uid: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Spent:
    wall_s: float
    cpu_s: float


async def replayed(
    state: Path, before: Sequence[Recorded], *parts: Sequence[Recorded]
) -> list[Spent]:
    """What each part costs a bare client, one part after the other, once the writes ``before``
    have been made."""
    async with served(state / "floor.db", real_ports(), ()) as platform:
        return await _sent_again(_Sender(platform), AT_ONCE, before, parts)


async def replayed_over_tls(
    state: Path, before: Sequence[Recorded], part: Sequence[Recorded]
) -> Spent:
    """The same of a client and an API server in a process each. What is its operator's to do the
    API server has done itself."""
    theirs = [write for write in before if "authorization" in write.request.headers]
    with plain_server(state / "floor") as connection:
        async with reached(connection) as transport:
            (spent,) = await _sent_again(transport, CONNECTIONS, theirs, (part,))
    return spent


async def _sent_again(
    transport: Transport,
    at_once: int,
    before: Sequence[Recorded],
    parts: Sequence[Sequence[Recorded]],
) -> list[Spent]:
    spent = []
    chains: dict[str, _Chain] = {}
    for write in before:
        chain = chains.setdefault(object_path(write), _Chain())
        chain.writes = [write]
        await _work_off(transport, [chain])
    settle_memory()
    for part in parts:
        for chain in chains.values():
            chain.writes.clear()
        for write in sorted(part, key=lambda write: write.number):
            chains.setdefault(object_path(write), _Chain()).writes.append(write)
        waiting = iter([chain for chain in chains.values() if chain.writes])
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(_work_off(transport, waiting) for _ in range(at_once)))
        spent.append(Spent(time.perf_counter() - wall_s, time.process_time() - cpu_s))
    return spent


async def _work_off(transport: Transport, waiting: Iterable[_Chain]) -> None:
    for chain in waiting:
        if not chain.version and chain.writes[0].request.method != "POST":
            await _look_up(transport, chain)
        for write in chain.writes:
            response = await transport.send(_adapted(write.request, chain))
            assert response.status < 300, (write.request, response)
            _note(chain, response)


async def _look_up(transport: Transport, chain: _Chain) -> None:
    """What a platform makes for itself is there already."""
    first = chain.writes[0]
    request = replace(first.request, method="GET", path=object_path(first), body=b"")
    _note(chain, await transport.send(request))


def _note(chain: _Chain, response: Response) -> None:
    metadata = decode(response.body).get("metadata", {})
    chain.uid = metadata.get("uid", chain.uid)
    chain.version = metadata.get("resourceVersion", chain.version)


def object_path(write: Recorded) -> str:
    """Of the object that was written, whether it was there before or not."""
    path = write.request.path.removesuffix(_SUBRESOURCE)
    if write.request.method != "POST":
        return path
    return f"{path}/{decode(write.answer.body)['metadata']['name']}"


def _adapted(request: Request, chain: _Chain) -> Request:
    body: Any = decode(request.body)
    if isinstance(body, list):
        for operation in body:
            if operation["path"] == "/metadata/uid":
                operation["value"] = chain.uid
    elif request.method == "DELETE":
        _replaced(body.get("preconditions", {}), chain)
    elif request.method != "POST":
        _replaced(body.get("metadata", {}), chain)
    return replace(request, body=encode(body))


def _replaced(facts: JsonObject, chain: _Chain) -> None:
    for name, value in (("uid", chain.uid), ("resourceVersion", chain.version)):
        if name in facts:
            facts[name] = value


class _Sender:
    """Each request as whoever sent it; those without a token came from the operator."""

    def __init__(self, platform: Platform) -> None:
        self._user = InProcessTransport(platform.dispatch)
        self._operator = InProcessTransport(partial(platform.server.dispatch_as, BOOTSTRAP))

    async def send(self, request: Request) -> Response:
        has_token = "authorization" in request.headers
        return await (self._user if has_token else self._operator).send(request)
