"""Open watches: what passes between the host that serves one and the host that reads it.

Between two hosts a pump on the serving host sends the lines on their way, and dies with that host.
Each arrives after those before it. A host that watches itself reads its own stream; what bends the
link to itself bends that, too.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from datum_compute.api.codec import decode, encode
from datum_compute.api.exchange import ByteStream

if TYPE_CHECKING:
    from testkit.sim.network import Network

_REPLAYED = 4  # how many of the latest events a watch tells again


@runtime_checkable
class Stoppable(ByteStream, Protocol):
    def stop(self) -> None:
        """End, also while somebody waits for the next line."""


class Pipe(ABC):
    """One open watch, for its reader and for those who bend it."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.half_open = False
        self.arrives_s = 0.0  # the last line that is on its way
        self._network = network
        self._asked = network.bends(source, target)
        self._answered = network.bends(target, source)
        self._lines: deque[bytes] = deque()
        self._latest: deque[bytes] = deque(maxlen=_REPLAYED)
        self._closed = False
        self._news: asyncio.Future[None] | None = None

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> bytes:
        while not self._lines:
            if self._closed:
                raise StopAsyncIteration
            await self._more()
        return self._lines.popleft()

    async def aclose(self) -> None:
        """The reader leaves."""
        self.close()
        self._lines.clear()

    def close(self) -> None:
        self._closed = True
        self._network.dropped(self)
        self._wake()

    def expire(self) -> None:
        """End with the word that the history is gone (410)."""
        status = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
        self._put(encode({"type": "ERROR", "object": {**status, "message": "compacted"}}) + b"\n")
        self.close()

    @abstractmethod
    async def _more(self) -> None:
        """Wait for a line, or for the end."""

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _take(self, line: bytes | None) -> None:
        """What has come over the link, None at its end."""
        if self._closed:
            return
        if line is None:
            if not self.half_open:  # else its reader never hears that it has ended
                self.close()
            return
        if self._answered.cut and not self.half_open:
            self._network.sometimes("watch cut")
            self.half_open = True
        if not self.half_open:
            self._pass(line)

    def _pass(self, line: bytes) -> None:
        if self._asked.deletes_lost and _is_deletion(line):
            self._network.sometimes("delete event lost")
            return
        self._put(line)
        self._latest.append(line)
        replays = self._asked.replays
        if replays and sum([chance() for chance in replays]):
            self._network.sometimes("events told again")
            *past, newest = self._latest  # and not how it ended, which would put it right at once
            for line in past or (newest,):
                self._put(line)

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._wake()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class PipeBetweenHosts(Pipe):
    def __init__(self, network: Network, source: str, target: str) -> None:
        super().__init__(network, source, target)
        self._on_the_way: deque[bytes | None] = deque()

    async def _more(self) -> None:
        await self._wait()

    async def pump(self, stream: ByteStream) -> None:
        async for line in stream:
            latency_s = self._network.latency_s(self.target, self.source)
            self._send(line, latency_s + sum(self._asked.lag_s))
            if self._closed:
                break
        await stream.aclose()
        self._send(None, 0.0)

    def _send(self, line: bytes | None, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._on_the_way.append(line)
        self.arrives_s = max(self.arrives_s, loop.time()) + delay_s
        loop.call_at(self.arrives_s, self._arrive)

    def _arrive(self) -> None:
        self._take(self._on_the_way.popleft())


class PipeWithinHost(Pipe):
    def __init__(self, network: Network, host: str, stream: Stoppable) -> None:
        super().__init__(network, host, host)
        self._stream = stream
        self._has_ended = False

    def close(self) -> None:
        super().close()
        self._stream.stop()

    async def _more(self) -> None:
        if self._has_ended:
            await self._wait()
            return
        line = await anext(self._stream, None)
        self._has_ended = line is None
        if self._asked.lag_s:
            lag_s = sum(self._asked.lag_s)
            self.arrives_s = asyncio.get_running_loop().time() + lag_s
            await asyncio.sleep(lag_s)
        self._take(line)


def _is_deletion(line: bytes) -> bool:
    return b'"DELETED"' in line[:40] and decode(line).get("type") == "DELETED"
