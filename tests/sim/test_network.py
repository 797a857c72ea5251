"""The effect of each link fault on requests and watches, with a host that only records requests."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from testkit.sim.host import SimulatedHost
from testkit.sim.loop import VirtualLoop, run_virtual
from testkit.sim.network import TIMEOUT_S, SimulatedNetwork, SimulatedWatch

READ = Request("GET", "/planes/hub/api/v1/namespaces")
WRITE = Request("PUT", "/planes/hub/api/v1/namespaces/one", body=b"{}")
WATCH = Request("GET", READ.path, {"watch": "1"})


class Lines:
    """A stream of the lines in a queue; an empty line ends it."""

    def __init__(self, lines: asyncio.Queue[bytes]) -> None:
        self._lines = lines

    def __aiter__(self) -> Lines:
        return self

    async def __anext__(self) -> bytes:
        if line := await self._lines.get():
            return line
        raise StopAsyncIteration

    def stop(self) -> None:
        self._lines.put_nowait(b"")

    async def aclose(self) -> None:
        self.stop()


class CountingHost:
    """A host that accepts and records every request, and serves one watch stream."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def answer(self, request: Request) -> Response:
        self.asked.append(request)
        stream = Lines(self.lines) if request.query.get("watch") else None
        return Response(200, b"{}", stream=stream)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.get_running_loop().create_task(work)


class Net:
    def __init__(self, loop: VirtualLoop, source: str) -> None:
        self.loop = loop
        self.source = source
        self.signs: Counter[str] = Counter()
        self.network = SimulatedNetwork(
            lambda _part: Random(1),
            lambda _plane, _age_s: 40,
            lambda sign: self.signs.update([sign]),
        )
        self.host = CountingHost()
        self.network.hosts["there"] = cast(SimulatedHost, self.host)
        self.requests = self.network.link_faults(source, "there")
        self.answers = self.network.link_faults("there", source)

    async def send(self, request: Request) -> Response:
        return await self.network.send(self.source, "there", request)

    async def open_watch(self) -> SimulatedWatch:
        return cast(SimulatedWatch, (await self.send(WATCH)).stream)


def run(story: Callable[[Net], Coroutine[Any, Any, None]], source: str = "here") -> None:
    async def main(loop: VirtualLoop) -> None:
        await story(Net(loop, source))

    run_virtual(Random(1), main)


# A watch from another host, and a watch of a host on itself.
watched = pytest.mark.parametrize("source", ["here", "there"])


def always() -> bool:
    return True


def test_a_sound_link_delivers_the_response() -> None:
    async def story(net: Net) -> None:
        assert (await net.send(READ)).status == 200
        assert net.host.asked == [READ]

    run(story)


def test_a_cut_request_direction_drops_the_request() -> None:
    async def story(net: Net) -> None:
        net.requests.cut += 1
        with pytest.raises(Unreachable):
            await net.send(WRITE)
        assert net.host.asked == []
        assert net.loop.time() >= TIMEOUT_S

    run(story)


def test_a_cut_response_direction_does_not_prevent_the_write() -> None:
    async def story(net: Net) -> None:
        net.answers.cut += 1
        with pytest.raises(Unreachable):
            await net.send(WRITE)
        assert net.host.asked == [WRITE]

    run(story)


@pytest.mark.parametrize(("bend", "arrives"), [("lost_before", 0), ("lost_after", 1)])
def test_a_lost_request_gets_no_response_whether_or_not_it_was_applied(
    bend: str, arrives: int
) -> None:
    async def story(net: Net) -> None:
        getattr(net.requests, bend).append(always)
        with pytest.raises(Unreachable):
            await net.send(WRITE)
        assert len(net.host.asked) == arrives

    run(story)


def test_a_throttled_request_gets_429_and_is_not_applied() -> None:
    async def story(net: Net) -> None:
        net.requests.throttled.append(always)
        response = await net.send(WRITE)
        assert (response.status, response.headers["retry-after"]) == (429, "1")
        assert net.host.asked == []

    run(story)


def test_a_delayed_write_times_out_and_arrives_later() -> None:
    async def story(net: Net) -> None:
        net.requests.delayed.append((always, 20.0))
        with pytest.raises(Unreachable):
            await net.send(WRITE)
        assert net.host.asked == []
        await asyncio.sleep(20)
        assert net.host.asked == [WRITE]

    run(story)


def test_a_repeated_write_arrives_twice() -> None:
    async def story(net: Net) -> None:
        net.requests.repeated.append((always, 3.0))
        assert (await net.send(WRITE)).status == 200
        await asyncio.sleep(4)
        assert net.host.asked == [WRITE, WRITE]

    run(story)


def test_a_list_is_stale_but_a_single_object_is_not() -> None:
    async def story(net: Net) -> None:
        net.requests.stale_s.append(3.0)
        await net.send(READ)
        await net.send(Request("GET", "/planes/hub/api/v1/namespaces/one"))
        queries = [dict(asked.query) for asked in net.host.asked]
        assert queries == [{"resourceVersion": "40", "resourceVersionMatch": "Exact"}, {}]

    run(story)


def test_a_broken_list_returns_only_its_first_page() -> None:
    async def story(net: Net) -> None:
        net.requests.broken_pages += 1
        await net.send(Request("GET", READ.path, {"limit": "1"}))
        with pytest.raises(Unreachable):
            await net.send(Request("GET", READ.path, {"limit": "1", "continue": "x"}))

    run(story)


@watched
def test_a_watch_delivers_lines_in_order(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        for line in (b"one", b"two"):
            net.host.lines.put_nowait(line)
        assert [await anext(watch_stream), await anext(watch_stream)] == [b"one", b"two"]

    run(story, source)


@watched
def test_a_half_open_watch_delivers_nothing_and_does_not_end(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        watch_stream.half_open = True
        net.host.lines.put_nowait(b"one")
        net.host.lines.put_nowait(b"")  # not even the end of the stream
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await anext(watch_stream)

    run(story, source)


@watched
def test_a_watch_over_a_cut_link_stays_silent(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        reading = asyncio.ensure_future(anext(watch_stream))
        net.answers.cut += 1
        net.host.lines.put_nowait(b"one")
        await asyncio.sleep(1)
        net.answers.cut -= 1
        net.host.lines.put_nowait(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reading, 600)

    run(story, source)


@watched
def test_a_closed_watch_ends_and_a_crashed_host_closes_its_watches(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        net.network.drop_host("there")
        with pytest.raises(StopAsyncIteration):
            await anext(watch_stream)
        assert net.network.watch_streams(source, "there") == []

    run(story, source)


@watched
def test_a_slow_watch_opens_late_and_a_lagging_watch_delivers_late(source: str) -> None:
    async def story(net: Net) -> None:
        net.requests.slow_watch_s.append(100.0)
        watch_stream = await net.open_watch()
        assert net.loop.time() >= 100
        net.requests.lag_s.append(8.0)
        net.host.lines.put_nowait(b"one")
        assert await anext(watch_stream) == b"one"
        assert net.loop.time() >= 108

    run(story, source)


@watched
def test_a_watch_ends_after_its_stream_has_been_delivered(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        for line in (b"one", b"two", b""):
            net.host.lines.put_nowait(line)
        assert [line async for line in watch_stream] == [b"one", b"two"]
        assert net.network.watch_streams(source, "there") == []

    run(story, source)


@watched
def test_a_watch_that_is_closed_during_a_read_ends(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        net.loop.call_later(5.0, watch_stream.close)
        assert [line async for line in watch_stream] == []
        assert 5.0 <= net.loop.time() < 6.0

    run(story, source)


@watched
def test_repeated_events_exclude_the_latest_state(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        net.host.lines.put_nowait(b"one")
        assert await anext(watch_stream) == b"one"
        net.requests.replays.append(always)
        net.host.lines.put_nowait(b"two")
        net.host.lines.put_nowait(b"three")
        received = [await anext(watch_stream) for _ in range(5)]
        assert received == [b"two", b"one", b"three", b"one", b"two"]

    run(story, source)


@watched
def test_lost_deletes_drop_only_deletions_and_expiring_sends_410(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        net.requests.deletes_lost += 1
        net.host.lines.put_nowait(b'{"type":"DELETED","object":{}}\n')
        net.host.lines.put_nowait(b'{"type":"ADDED","object":{}}\n')
        assert b"ADDED" in await anext(watch_stream)
        watch_stream.expire()
        assert b"410" in await anext(watch_stream)
        with pytest.raises(StopAsyncIteration):
            await anext(watch_stream)

    run(story, source)


@watched
def test_an_expired_token_is_refused_and_open_watches_continue(source: str) -> None:
    """F29: an expired token affects only new requests."""

    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        net.requests.unauthorized += 1
        assert (await net.send(READ)).status == 401
        net.host.lines.put_nowait(b"one")
        assert await anext(watch_stream) == b"one"

    run(story, source)


def test_only_lists_are_answered_from_a_cache() -> None:
    """F3: other requests are refused with 503."""

    async def story(net: Net) -> None:
        net.requests.cached_s.append(10.0)
        assert (await net.send(WRITE)).status == 503
        assert (await net.send(WATCH)).status == 503
        assert (await net.send(READ)).status == 200
        assert net.host.asked[0].query["resourceVersion"] == "40"

    run(story)


def test_writes_that_will_still_arrive_are_counted() -> None:
    async def story(net: Net) -> None:
        net.requests.delayed.append((always, 20.0))
        with pytest.raises(Unreachable):
            await net.send(WRITE)
        assert net.network.in_transit == 1
        await asyncio.sleep(20)
        assert net.network.in_transit == 0

    run(story)


@watched
def test_an_opening_or_lagging_watch_is_reported_as_stalled_until_it_is_current(
    source: str,
) -> None:
    async def story(net: Net) -> None:
        net.requests.slow_watch_s.append(100.0)
        opening = asyncio.create_task(net.open_watch())
        await asyncio.sleep(1)
        assert "being opened" in net.network.find_stalled_streams()
        watch_stream = await opening
        net.requests.lag_s.append(8.0)
        for line in (b"one", b"two"):
            net.host.lines.put_nowait(line)
        reading = asyncio.create_task(anext(watch_stream))
        await asyncio.sleep(1)
        assert "lags" in net.network.find_stalled_streams()
        net.requests.lag_s.clear()
        assert await reading == b"one"
        assert await anext(watch_stream) == b"two"
        assert net.network.find_stalled_streams() == ""

    run(story, source)


def test_the_backlog_of_a_lagging_watch_arrives_at_a_known_time() -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        net.requests.lag_s.append(8.0)
        for _ in range(50):
            net.host.lines.put_nowait(b"one")
        await asyncio.sleep(1)
        net.requests.lag_s.clear()
        arrives_s = net.network.backlog_arrives_s()
        assert arrives_s >= 400, "one line takes its way after the other"
        await asyncio.sleep(arrives_s - net.loop.time() - 2)
        assert "lags" in net.network.find_stalled_streams()
        await asyncio.sleep(2)
        assert net.network.find_stalled_streams() == ""
        await watch_stream.aclose()
        assert net.network.backlog_arrives_s() == 0.0

    run(story)


def test_a_crashed_host_opens_no_watch() -> None:
    async def story(net: Net) -> None:
        net.requests.slow_watch_s.append(100.0)
        opening = asyncio.create_task(net.open_watch())
        await asyncio.sleep(1)
        net.network.drop_host("another")
        assert "being opened" in net.network.find_stalled_streams()
        net.network.drop_host(net.source)
        assert net.network.find_stalled_streams() == ""
        opening.cancel()  # the loop also cancels tasks of crashed hosts at the end of a run
        with pytest.raises(asyncio.CancelledError):
            await opening

    run(story)


@watched
def test_a_silent_watch_is_reported_until_its_reader_closes_it(source: str) -> None:
    async def story(net: Net) -> None:
        watch_stream = await net.open_watch()
        assert net.network.find_stalled_streams() == ""
        watch_stream.half_open = True
        assert source in net.network.find_stalled_streams()
        await watch_stream.aclose()
        assert net.network.find_stalled_streams() == ""

    run(story, source)
