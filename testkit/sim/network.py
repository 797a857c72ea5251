"""Requests and watches between hosts, and the faults of the links between them.

Links are directed: ``(source, target)`` carries requests of source to target and the responses of
source to target, so one direction can fail alone. A host reaches its own planes by a link to
itself, which has no latency but can have faults.

- A request without a response raises Unreachable, whether or not it was applied.
- A watch ends with the host that serves it.
- A fault is evaluated when a request or event passes.

Between two hosts a task on the serving host sends the lines of a watch, in order, and ends with
that host. A host that watches itself reads its own stream.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from datum_compute.api.errors import (
    ApiError,
    ServiceUnavailable,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    to_status,
)
from datum_compute.api.http import ByteStream, Request, Response
from datum_compute.api.meta.codec import decode, encode
from datum_compute.api.planes import PlaneName, split_path
from datum_compute.client.transport.interface import Transport, is_watch
from datum_compute.server.verbs.watch_stream import WatchStream

if TYPE_CHECKING:
    from testkit.sim.host import SimulatedHost


TIMEOUT_S = 5.0
LATENCY_S = (0.001, 0.02)
# An event that takes longer counts as lagging.
LATE_S = 1.0

Link = tuple[str, str]
# Wraps a transport, below the retries.
WrapTransport = Callable[[Transport], Transport]
Chance = Callable[[], bool]


@dataclass(slots=True)
class LinkFaults:
    """The faults of one link at this moment. Every list has one entry per fault."""

    cut: int = 0
    lost_before: list[Chance] = field(default_factory=list)
    lost_after: list[Chance] = field(default_factory=list)
    throttled: list[Chance] = field(default_factory=list)
    delayed: list[tuple[Chance, float]] = field(default_factory=list)
    repeated: list[tuple[Chance, float]] = field(default_factory=list)
    stale_s: list[float] = field(default_factory=list)
    broken_pages: int = 0
    slow_watch_s: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)
    replays: list[Chance] = field(default_factory=list)
    deletes_lost: int = 0
    slowness: list[float] = field(default_factory=list)
    unauthorized: int = 0
    watches_refused: int = 0
    cached_s: list[float] = field(default_factory=list)  # for lists only: their age


class SimulatedNetwork:
    def __init__(
        self,
        random: Callable[[str], Random],
        version_before: Callable[[PlaneName, float], int],
        sometimes: Callable[[str], None],
    ) -> None:
        self.hosts: dict[str, SimulatedHost] = {}
        self.requests = 0
        self.in_transit = 0  # writes that timed out at the sender and will still arrive
        self.sometimes = sometimes
        self.on_send: Callable[[str, Request], None] | None = None
        self._random = random
        self._randoms: dict[Link, Random] = {}
        self._link_faults: dict[Link, LinkFaults] = {}
        self._watches: dict[SimulatedWatch, None] = {}
        self._opening: dict[object, Link] = {}  # watches that are being opened slowly
        self._version_before = version_before

    def link_faults(self, source: str, target: str) -> LinkFaults:
        link = (source, target)
        found = self._link_faults.get(link)
        if found is None:
            found = self._link_faults[link] = LinkFaults()
        return found

    def transport(self, source: str, target: str) -> LinkTransport:
        return LinkTransport(self, source, target)

    def watch_streams(self, source: str, target: str) -> list[SimulatedWatch]:
        """Return the open watches of source at target."""
        return [p for p in self._watches if (p.source, p.target) == (source, target)]

    def find_stalled_streams(self) -> str:
        """Return a half-open watch that the reader has not detected, which takes a minute, a watch
        with a backlog, or one that is being opened."""
        late_s = asyncio.get_running_loop().time() + LATE_S
        for watch_stream in self._watches:
            if watch_stream.half_open:
                return f"a watch of {watch_stream.source} at {watch_stream.target} is half-open"
            if watch_stream.arrives_s > late_s:
                return f"a watch of {watch_stream.source} at {watch_stream.target} lags"
        for source, target in self._opening.values():
            return f"a watch of {source} at {target} is being opened"
        return ""

    def backlog_arrives_s(self) -> float:
        """Return when the last event in transit arrives."""
        return max((watch_stream.arrives_s for watch_stream in self._watches), default=0.0)

    def drop_host(self, host: str) -> None:
        """Close all connections from and to a host whose process crashed."""
        for watch_stream in list(self._watches):
            if host in (watch_stream.source, watch_stream.target):
                watch_stream.close()
        # Tasks of a crashed host never run again, so they do not remove their entries themselves.
        for opening, (source, _) in list(self._opening.items()):
            if source == host:
                del self._opening[opening]

    def remove_watch(self, watch_stream: SimulatedWatch) -> None:
        self._watches.pop(watch_stream, None)

    def latency_s(self, source: str, target: str) -> float:
        if source == target:
            return 0.0
        link = (source, target)
        random = self._randoms.get(link)
        if random is None:
            random = self._randoms[link] = self._random(f"{source}-{target}")
        return random.uniform(*LATENCY_S)

    async def send(self, source: str, target: str, request: Request) -> Response:
        request_faults, response_faults = (
            self.link_faults(source, target),
            self.link_faults(target, source),
        )
        self.requests += 1
        if self.on_send is not None:
            self.on_send(source, request)
        await self._travel(source, target, request_faults)
        if _is_hit(request_faults.throttled):
            self.sometimes("throttled")
            return _refusal(TooManyRequests("slow down", retry_after_s=1))
        if request_faults.unauthorized:
            self.sometimes("token expired")
            return _refusal(Unauthorized("the token has expired"))
        if request_faults.cached_s and (is_watch(request) or not _is_list(request)):
            self.sometimes("only the cache answers")
            return _refusal(ServiceUnavailable("the store does not respond"))
        if _is_hit(request_faults.lost_before):
            self.sometimes("lost before apply")
            raise await _no_answer()
        if is_watch(request):
            return await self._open_watch(source, target, request, request_faults)
        if request.method == "GET":
            return await self._read(source, target, request, request_faults, response_faults)
        return await self._write(source, target, request, request_faults, response_faults)

    async def _travel(self, source: str, target: str, link_faults: LinkFaults) -> None:
        delay_s = self.latency_s(source, target) + sum(link_faults.slowness)
        if delay_s:
            await asyncio.sleep(delay_s)
        if link_faults.cut:
            self.sometimes("cut")
            raise await _no_answer()

    async def _read(
        self,
        source: str,
        target: str,
        request: Request,
        request_faults: LinkFaults,
        response_faults: LinkFaults,
    ) -> Response:
        if request_faults.broken_pages and "continue" in request.query:
            self.sometimes("list broken off")
            raise await _no_answer()
        if request_faults.broken_pages and "limit" in request.query:
            # A server may return fewer objects than the limit allows.
            request = replace(request, query={**request.query, "limit": "2"})
        if (ages := (*request_faults.stale_s, *request_faults.cached_s)) and _is_list(request):
            request = self._for_older_version(request, max(ages))
        response = await self._deliver(target, request)
        if response.status == 410 and "resourceVersionMatch" in request.query:
            response = await self._deliver(target, _plain_list(request))
        await self._travel(target, source, response_faults)
        return response

    async def _write(
        self,
        source: str,
        target: str,
        request: Request,
        request_faults: LinkFaults,
        response_faults: LinkFaults,
    ) -> Response:
        for chance, delay_s in request_faults.delayed:
            if chance():
                self.sometimes("write delayed")
                self._deliver_later(target, request, delay_s)
                raise await _no_answer()
        for chance, delay_s in request_faults.repeated:
            if chance():
                self.sometimes("write repeated")
                self._deliver_later(target, request, delay_s)
        response = await self._deliver(target, request)
        if _is_hit(request_faults.lost_after):
            self.sometimes("lost after apply")
            raise await _no_answer()
        await self._travel(target, source, response_faults)
        return response

    async def _open_watch(
        self, source: str, target: str, request: Request, request_faults: LinkFaults
    ) -> Response:
        if request_faults.watches_refused:
            raise await _no_answer()
        if request_faults.slow_watch_s:
            self.sometimes("watch opened slowly")
            await self._open_slowly((source, target), max(request_faults.slow_watch_s))
        response = await self._deliver(target, request)
        if response.stream is None:
            return response
        watch_stream = self._create_watch(source, target, response.stream)
        self._watches[watch_stream] = None
        return replace(response, stream=watch_stream)

    async def _open_slowly(self, link: Link, delay_s: float) -> None:
        opening = object()
        self._opening[opening] = link
        try:
            await asyncio.sleep(delay_s)
        finally:
            self._opening.pop(opening, None)

    def _create_watch(self, source: str, target: str, stream: ByteStream) -> SimulatedWatch:
        if source == target and isinstance(stream, WatchStream):
            return LocalWatch(self, source, stream)
        watch_stream = RemoteWatch(self, source, target)
        self.hosts[target].spawn(watch_stream.pump(stream))
        return watch_stream

    async def _deliver(self, target: str, request: Request) -> Response:
        return await self.hosts[target].answer(request)

    def _deliver_later(self, target: str, request: Request, delay_s: float) -> None:
        self.in_transit += 1

        async def late() -> None:
            await asyncio.sleep(delay_s)
            try:
                await self._deliver(target, request)
            except Unreachable:
                return
            finally:
                self.in_transit -= 1

        # The write belongs to no host while it is in transit: it arrives even if the sender has
        # crashed.
        asyncio.get_running_loop().create_task(late(), context=contextvars.Context())

    def _for_older_version(self, request: Request, age_s: float) -> Request:
        """Return a request for the list as of an older version of the plane."""
        version = self._version_before(split_path(request.path)[0], age_s)
        if not version:
            return request
        self.sometimes("list from the past")
        query = {"resourceVersion": str(version), "resourceVersionMatch": "Exact"}
        return replace(request, query={**request.query, **query})


@dataclass(frozen=True, slots=True)
class LinkTransport:
    network: SimulatedNetwork
    source: str
    target: str

    async def send(self, request: Request) -> Response:
        return await self.network.send(self.source, self.target, request)


def _is_hit(chances: list[Chance]) -> bool:
    """Evaluate every chance. Each draws once per request, whatever the result of the others."""
    return bool(chances) and sum([chance() for chance in chances]) > 0


def _is_list(request: Request) -> bool:
    """Return True for the first page of a collection: only those can be stale."""
    if request.query.get("continue") or "/namespaces/default" in request.path[-20:]:
        return False
    parts = [part for part in split_path(request.path)[1].split("/") if part]
    rest = parts[2:] if parts[:1] == ["api"] else parts[3:]
    return len(rest) == 1 or (len(rest) == 3 and rest[0] == "namespaces")


def _plain_list(request: Request) -> Request:
    query = {k: v for k, v in request.query.items() if not k.startswith("resourceVersion")}
    return replace(request, query=query)


def _refusal(error: ApiError) -> Response:
    retry_after_s = getattr(error, "retry_after_s", None)
    headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}
    return Response(error.code, encode(to_status(error)), headers=headers)


async def _no_answer() -> Unreachable:
    await asyncio.sleep(TIMEOUT_S)
    return Unreachable("no answer came")


_REPLAYED = 4  # how many of the latest events a watch repeats


class SimulatedWatch(ABC):
    """One open watch, with its link's faults applied."""

    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.half_open = False
        self.arrives_s = 0.0  # when the last line in transit arrives
        self._network = network
        self._request_faults = network.link_faults(source, target)
        self._response_faults = network.link_faults(target, source)
        self._lines: deque[bytes] = deque()
        self._latest: deque[bytes] = deque(maxlen=_REPLAYED)
        self._closed = False
        self._change_signal: asyncio.Future[None] | None = None

    def __aiter__(self) -> SimulatedWatch:
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            if self._closed:
                raise StopAsyncIteration
            await self._wait_for_line()
        return self._lines.popleft()

    async def aclose(self) -> None:
        """Close the watch at the reader."""
        self.close()
        self._lines.clear()

    def close(self) -> None:
        self._closed = True
        self._network.remove_watch(self)
        self._wake()

    def expire(self) -> None:
        """End the watch with a 410, as after a compaction."""
        status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
        self._put(encode({"type": "ERROR", "object": {**status, "message": "compacted"}}) + b"\n")
        self.close()

    @abstractmethod
    async def _wait_for_line(self) -> None:
        """Wait for a line or for the end of the stream."""

    async def _wait(self) -> None:
        self._change_signal = asyncio.get_running_loop().create_future()
        await self._change_signal

    def _receive(self, line: bytes | None) -> None:
        """Handle a line from the link, or None at its end."""
        if self._closed:
            return
        if line is None:
            if not self.half_open:  # otherwise the reader does not observe the end
                self.close()
            return
        if self._response_faults.cut and not self.half_open:
            self._network.sometimes("watch cut")
            self.half_open = True
        if not self.half_open:
            self._forward(line)

    def _forward(self, line: bytes) -> None:
        if self._request_faults.deletes_lost and _is_deletion(line):
            self._network.sometimes("delete event lost")
            return
        self._put(line)
        self._latest.append(line)
        replays = self._request_faults.replays
        if replays and sum([chance() for chance in replays]):
            self._network.sometimes("events repeated")
            *past, newest = (
                self._latest
            )  # not the last event, which would correct the state at once
            for line in past or (newest,):
                self._put(line)

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._wake()

    def _wake(self) -> None:
        if self._change_signal is not None and not self._change_signal.done():
            self._change_signal.set_result(None)


class RemoteWatch(SimulatedWatch):
    def __init__(self, network: SimulatedNetwork, source: str, target: str) -> None:
        super().__init__(network, source, target)
        self._in_transit: deque[bytes | None] = deque()

    async def _wait_for_line(self) -> None:
        await self._wait()

    async def pump(self, stream: ByteStream) -> None:
        async for line in stream:
            latency_s = self._network.latency_s(self.target, self.source)
            self._send(line, latency_s + sum(self._request_faults.lag_s))
            if self._closed:
                break
        await stream.aclose()
        self._send(None, 0.0)

    def _send(self, line: bytes | None, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._in_transit.append(line)
        self.arrives_s = max(self.arrives_s, loop.time()) + delay_s
        loop.call_at(self.arrives_s, self._arrive)

    def _arrive(self) -> None:
        self._receive(self._in_transit.popleft())


class LocalWatch(SimulatedWatch):
    def __init__(self, network: SimulatedNetwork, host: str, stream: WatchStream) -> None:
        super().__init__(network, host, host)
        self._stream = stream
        self._has_ended = False

    def close(self) -> None:
        super().close()
        self._stream.stop()

    async def _wait_for_line(self) -> None:
        if self._has_ended:
            await self._wait()
            return
        line = await anext(self._stream, None)
        self._has_ended = line is None
        if self._request_faults.lag_s:
            lag_s = sum(self._request_faults.lag_s)
            self.arrives_s = asyncio.get_running_loop().time() + lag_s
            await asyncio.sleep(lag_s)
        self._receive(line)


def _is_deletion(line: bytes) -> bool:
    return b'"DELETED"' in line[:40] and decode(line).get("type") == "DELETED"
