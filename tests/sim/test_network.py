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


Story = Callable[[Net], Coroutine[Any, Any, None]]


def on_links_from(*sources: str) -> Callable[[Story], Callable[[str], None]]:
    """Run the decorated story in virtual time on a link from each source to the host "there"."""

    def decorate(story: Story) -> Callable[[str], None]:
        @pytest.mark.parametrize("source", sources)
        def test(source: str) -> None:
            async def main(loop: VirtualLoop) -> None:
                await story(Net(loop, source))

            run_virtual(Random(1), main)

        return test

    return decorate


on_link = on_links_from("here")
# A watch from another host, and a watch of a host on itself.
on_link_and_on_itself = on_links_from("here", "there")


def always() -> bool:
    return True


@pytest.mark.parametrize(
    ("fault", "arrives"),
    [
        ("request direction cut", False),
        ("response direction cut", True),
        ("lost before the host", False),
        ("lost after the host", True),
    ],
)
def test_a_write_without_a_response_arrives_only_if_the_response_was_lost(
    fault: str, arrives: bool
) -> None:
    async def main(loop: VirtualLoop) -> None:
        net = Net(loop, "here")
        net.requests.cut += fault == "request direction cut"
        net.answers.cut += fault == "response direction cut"
        net.requests.lost_before += [always] * (fault == "lost before the host")
        net.requests.lost_after += [always] * (fault == "lost after the host")
        with pytest.raises(Unreachable):
            await net.send(WRITE)
        assert net.host.asked == [WRITE] * arrives
        assert loop.time() >= TIMEOUT_S

    run_virtual(Random(1), main)


@on_link
async def test_a_throttled_request_gets_429_and_is_not_applied(net: Net) -> None:
    net.requests.throttled.append(always)
    response = await net.send(WRITE)
    assert (response.status, response.headers["retry-after"]) == (429, "1")
    assert net.host.asked == []


@on_link
async def test_a_delayed_write_times_out_is_counted_and_arrives_later(net: Net) -> None:
    net.requests.delayed.append((always, 20.0))
    with pytest.raises(Unreachable):
        await net.send(WRITE)
    assert (net.host.asked, net.network.in_transit) == ([], 1)
    await asyncio.sleep(20)
    assert (net.host.asked, net.network.in_transit) == ([WRITE], 0)


@on_link
async def test_a_repeated_write_arrives_twice(net: Net) -> None:
    net.requests.repeated.append((always, 3.0))
    assert (await net.send(WRITE)).status == 200
    await asyncio.sleep(4)
    assert net.host.asked == [WRITE, WRITE]


@on_link
async def test_a_list_is_stale_but_a_single_object_is_not(net: Net) -> None:
    net.requests.stale_s.append(3.0)
    await net.send(READ)
    await net.send(Request("GET", "/planes/hub/api/v1/namespaces/one"))
    queries = [dict(asked.query) for asked in net.host.asked]
    assert queries == [{"resourceVersion": "40", "resourceVersionMatch": "Exact"}, {}]


@on_link
async def test_a_broken_list_returns_only_its_first_page(net: Net) -> None:
    net.requests.broken_pages += 1
    await net.send(Request("GET", READ.path, {"limit": "1"}))
    with pytest.raises(Unreachable):
        await net.send(Request("GET", READ.path, {"limit": "1", "continue": "x"}))


@on_link_and_on_itself
async def test_a_half_open_watch_delivers_nothing_and_does_not_end(net: Net) -> None:
    watch_stream = await net.open_watch()
    watch_stream.half_open = True
    net.host.lines.put_nowait(b"one")
    net.host.lines.put_nowait(b"")  # not even the end of the stream
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(600):
            await anext(watch_stream)


@on_link_and_on_itself
async def test_a_watch_over_a_cut_link_stays_silent(net: Net) -> None:
    watch_stream = await net.open_watch()
    reading = asyncio.ensure_future(anext(watch_stream))
    net.answers.cut += 1
    net.host.lines.put_nowait(b"one")
    await asyncio.sleep(1)
    net.answers.cut -= 1
    net.host.lines.put_nowait(b"two")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reading, 600)


@on_link_and_on_itself
async def test_a_closed_watch_ends_and_a_crashed_host_closes_its_watches(net: Net) -> None:
    watch_stream = await net.open_watch()
    net.network.drop_host("there")
    with pytest.raises(StopAsyncIteration):
        await anext(watch_stream)
    assert net.network.watch_streams(net.source, "there") == []


@on_link_and_on_itself
async def test_a_slow_watch_opens_late_and_a_lagging_watch_delivers_late(net: Net) -> None:
    net.requests.slow_watch_s.append(100.0)
    watch_stream = await net.open_watch()
    assert net.loop.time() >= 100
    net.requests.lag_s.append(8.0)
    net.host.lines.put_nowait(b"one")
    assert await anext(watch_stream) == b"one"
    assert net.loop.time() >= 108


@on_link_and_on_itself
async def test_a_watch_ends_after_its_stream_has_been_delivered(net: Net) -> None:
    watch_stream = await net.open_watch()
    for line in (b"one", b"two", b""):
        net.host.lines.put_nowait(line)
    assert [line async for line in watch_stream] == [b"one", b"two"]
    assert net.network.watch_streams(net.source, "there") == []


@on_link_and_on_itself
async def test_repeated_events_exclude_the_latest_state(net: Net) -> None:
    watch_stream = await net.open_watch()
    net.host.lines.put_nowait(b"one")
    assert await anext(watch_stream) == b"one"
    net.requests.replays.append(always)
    net.host.lines.put_nowait(b"two")
    net.host.lines.put_nowait(b"three")
    received = [await anext(watch_stream) for _ in range(5)]
    assert received == [b"two", b"one", b"three", b"one", b"two"]


@on_link_and_on_itself
async def test_lost_deletes_drop_only_deletions_and_expiring_sends_410(net: Net) -> None:
    watch_stream = await net.open_watch()
    net.requests.deletes_lost += 1
    net.host.lines.put_nowait(b'{"type":"DELETED","object":{}}\n')
    net.host.lines.put_nowait(b'{"type":"ADDED","object":{}}\n')
    assert b"ADDED" in await anext(watch_stream)
    watch_stream.expire()
    assert b"410" in await anext(watch_stream)
    with pytest.raises(StopAsyncIteration):
        await anext(watch_stream)


@on_link_and_on_itself
async def test_an_expired_token_is_refused_and_open_watches_continue(net: Net) -> None:
    """F29: an expired token affects only new requests."""
    watch_stream = await net.open_watch()
    net.requests.unauthorized += 1
    assert (await net.send(READ)).status == 401
    net.host.lines.put_nowait(b"one")
    assert await anext(watch_stream) == b"one"


@on_link
async def test_only_lists_are_answered_from_a_cache(net: Net) -> None:
    """F3: other requests are refused with 503."""
    net.requests.cached_s.append(10.0)
    assert (await net.send(WRITE)).status == 503
    assert (await net.send(WATCH)).status == 503
    assert (await net.send(READ)).status == 200
    assert net.host.asked[0].query["resourceVersion"] == "40"


@on_link_and_on_itself
async def test_an_opening_or_lagging_watch_is_reported_as_stalled_until_it_is_current(
    net: Net,
) -> None:
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


@on_link
async def test_the_backlog_of_a_lagging_watch_arrives_at_a_known_time(net: Net) -> None:
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


@on_link
async def test_a_crashed_host_opens_no_watch(net: Net) -> None:
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


@on_link_and_on_itself
async def test_a_silent_watch_is_reported_until_its_reader_closes_it(net: Net) -> None:
    watch_stream = await net.open_watch()
    assert net.network.find_stalled_streams() == ""
    watch_stream.half_open = True
    assert net.source in net.network.find_stalled_streams()
    await watch_stream.aclose()
    assert net.network.find_stalled_streams() == ""
