"""The lower bound for controllers: a client that only sends the writes that they made.

Recorded writes are sent again to another durable platform, in order for each object and for many
objects at once. The platform is in the same process, or in another process over TLS. Versions and
uids in a body are replaced by those of the second run.
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

from bench.api_server_process import open_to, run_api_server
from bench.instance_world import Recorded, served
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.app.environment import process_environment
from datum_compute.app.platform import BOOTSTRAP, Platform
from datum_compute.app.process import settle_memory
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.client.transport.interface import Transport

AT_ONCE = 64
CONNECTIONS = 32
_SUBRESOURCE = "/status"


@dataclass(slots=True)
class _Chain:
    """The writes of one object in order, and its current uid and version."""

    writes: list[Recorded] = field(default_factory=list)
    uid: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Timing:
    """Elapsed time and CPU time of this process."""

    wall_s: float
    cpu_s: float


async def replay_in_process(
    state: Path, before: Sequence[Recorded], *parts: Sequence[Recorded]
) -> list[Timing]:
    """Send the writes ``before``, then each part; return the time of each part."""
    async with served(state / "floor.db", process_environment(), ()) as platform:
        return await _replay(_AuthenticatingTransport(platform), AT_ONCE, before, parts)


async def replay_over_tls(
    state: Path, before: Sequence[Recorded], part: Sequence[Recorded]
) -> Timing:
    """Return the same with client and API server in separate processes. The server makes the writes
    of its operator itself."""
    theirs = [write for write in before if "authorization" in write.request.headers]
    with run_api_server(state / "floor") as connection:
        async with open_to(connection) as transport:
            (timing,) = await _replay(transport, CONNECTIONS, theirs, (part,))
    return timing


async def _replay(
    transport: Transport,
    at_once: int,
    before: Sequence[Recorded],
    parts: Sequence[Sequence[Recorded]],
) -> list[Timing]:
    timings = []
    chains: dict[str, _Chain] = {}
    for write in before:
        chain = chains.setdefault(object_path(write), _Chain())
        chain.writes = [write]
        await _send_chains(transport, [chain])
    settle_memory()
    for part in parts:
        for chain in chains.values():
            chain.writes.clear()
        for write in sorted(part, key=lambda write: write.number):
            chains.setdefault(object_path(write), _Chain()).writes.append(write)
        waiting = iter([chain for chain in chains.values() if chain.writes])
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        await asyncio.gather(*(_send_chains(transport, waiting) for _ in range(at_once)))
        timings.append(Timing(time.perf_counter() - wall_s, time.process_time() - cpu_s))
    return timings


async def _send_chains(transport: Transport, waiting: Iterable[_Chain]) -> None:
    for chain in waiting:
        if not chain.version and chain.writes[0].request.method != "POST":
            await _look_up(transport, chain)
        for write in chain.writes:
            response = await transport.send(_adapt(write.request, chain))
            assert response.status < 300, (write.request, response)
            _note(chain, response)


async def _look_up(transport: Transport, chain: _Chain) -> None:
    """Read an object that the platform created itself."""
    first = chain.writes[0]
    request = replace(first.request, method="GET", path=object_path(first), body=b"")
    _note(chain, await transport.send(request))


def _note(chain: _Chain, response: Response) -> None:
    metadata = decode(response.body).get("metadata", {})
    chain.uid = metadata.get("uid", chain.uid)
    chain.version = metadata.get("resourceVersion", chain.version)


def object_path(write: Recorded) -> str:
    """Return the path of the written object, also for a create."""
    path = write.request.path.removesuffix(_SUBRESOURCE)
    if write.request.method != "POST":
        return path
    return f"{path}/{decode(write.answer.body)['metadata']['name']}"


def _adapt(request: Request, chain: _Chain) -> Request:
    body: Any = decode(request.body)
    if isinstance(body, list):
        for operation in body:
            if operation["path"] == "/metadata/uid":
                operation["value"] = chain.uid
    elif request.method == "DELETE":
        _replace_values(body.get("preconditions", {}), chain)
    elif request.method != "POST":
        _replace_values(body.get("metadata", {}), chain)
    return replace(request, body=encode(body))


def _replace_values(facts: JsonObject, chain: _Chain) -> None:
    for name, value in (("uid", chain.uid), ("resourceVersion", chain.version)):
        if name in facts:
            facts[name] = value


class _AuthenticatingTransport:
    """Sends each request as its original user. Requests without a token came from the operator."""

    def __init__(self, platform: Platform) -> None:
        self._user = InProcessTransport(platform.dispatch)
        self._operator = InProcessTransport(partial(platform.server.dispatch_as, BOOTSTRAP))

    async def send(self, request: Request) -> Response:
        has_token = "authorization" in request.headers
        return await (self._user if has_token else self._operator).send(request)
