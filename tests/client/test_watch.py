"""Watches are resumed, lists are repeated, silence is detected, and the log is short."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import ServiceUnavailable, to_status
from datum_compute.api.http import Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import ANSWER_S
from datum_compute.client.responses import ListResult
from datum_compute.client.watch import (
    IDLE_TIMEOUT_S,
    LIST_TIMEOUT_S,
    OLDER_LISTS_MAX,
    REMIND_S,
    Deadlines,
    Watched,
    follow,
    follow_mapped,
)
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.client.replay_transport import (
    ReplayTransport,
    ResponseOrError,
    event,
    in_virtual_time,
    json_response,
    list_response,
    namespace,
    status,
    stream,
    unreachable,
)

ADDED = event("ADDED", namespace("a", 7))
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


def collect_items(transport: ReplayTransport, count: int) -> list[str]:
    """Return the first ``count`` items of a watch as text."""

    async def test() -> list[str]:
        seen: list[str] = []
        watched = Watched(NAMESPACE)
        async with aclosing(follow(transport.client(), watched, Random(1))) as news:
            async for item in news:
                if isinstance(item, ListResult):
                    seen.append(f"list@{item.version}")
                else:
                    seen.append(f"{item.type}@{item.version}")
                if len(seen) == count:
                    return seen
        raise AssertionError

    return in_virtual_time(test)


def test_a_watch_starts_at_the_version_of_the_list() -> None:
    transport = ReplayTransport(list_response(5), stream(ADDED))
    assert collect_items(transport, 2) == ["list@5", "ADDED@7"]
    assert transport.watched_since == ["list", "5"]


def test_a_stream_that_ends_is_resumed_at_the_last_version_seen() -> None:
    bookmark = event("BOOKMARK", namespace("", 9))
    again = event("MODIFIED", namespace("a", 11))
    transport = ReplayTransport(list_response(5), stream(ADDED, bookmark), stream(again))
    assert collect_items(transport, 4) == ["list@5", "ADDED@7", "BOOKMARK@9", "MODIFIED@11"]
    assert transport.watched_since == ["list", "5", "9"]


@pytest.mark.parametrize(
    "break_",
    [
        stream(ADDED, then="breaks"),
        stream(ADDED, event("ERROR", {"kind": "Status", "code": 503, "message": "busy"})),
    ],
)
def test_a_stream_that_breaks_is_resumed_without_a_new_list(break_: ResponseOrError) -> None:
    refused: list[ResponseOrError] = [unreachable(), status(503), status(429, "TooManyRequests")]
    transport = ReplayTransport(
        list_response(5), break_, *refused, stream(event("DELETED", namespace("a", 8)))
    )
    assert collect_items(transport, 3) == ["list@5", "ADDED@7", "DELETED@8"]
    assert transport.watched_since == ["list", "5", "7", "7", "7", "7"]


@pytest.mark.parametrize("expired", [status(410, "Expired"), stream(event("ERROR", GONE))])
def test_a_version_that_is_too_old_leads_to_a_new_list(expired: ResponseOrError) -> None:
    transport = ReplayTransport(
        list_response(5), expired, list_response(50), stream(event("ADDED", namespace("b", 51)))
    )
    assert collect_items(transport, 3) == ["list@5", "list@50", "ADDED@51"]
    assert transport.watched_since == ["list", "5", "list", "50"]


@pytest.mark.parametrize(
    "invalid",
    [
        stream(b"not json\n"),
        stream(event("SURPRISE", {})),
        stream(event("ADDED", {"metadata": {"name": 5}})),
        stream(event("ERROR", {"code": "x"})),
        status(403, "Forbidden"),
        status(500),
    ],
)
def test_an_invalid_response_leads_to_a_new_list(invalid: ResponseOrError) -> None:
    transport = ReplayTransport(list_response(5), invalid, list_response(6), stream(ADDED))
    assert collect_items(transport, 3) == ["list@5", "list@6", "ADDED@7"]


@pytest.mark.parametrize("invalid", [list_response(5, 3), status(500), unreachable()])
def test_a_failed_list_is_retried(invalid: ResponseOrError) -> None:
    transport = ReplayTransport(invalid, list_response(5), stream(ADDED))
    assert collect_items(transport, 2) == ["list@5", "ADDED@7"]


def test_a_watch_is_replaced_after_the_idle_timeout(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    transport = ReplayTransport(list_response(5), stream(then="is silent"), stream(ADDED))
    assert collect_items(transport, 2) == ["list@5", "ADDED@7"]
    assert transport.watched_since == ["list", "5", "5"]
    assert transport.sent_at_s[-1] == IDLE_TIMEOUT_S
    assert caplog.messages == [], "a silent watch of a quiet plane is not logged"


def test_a_watch_without_a_response_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    record_requests(ReplayTransport(list_response(5)), 2.5 * ANSWER_S)
    (message,) = caplog.messages
    assert message.startswith(
        "namespaces: watch failed, retrying: a watch was not answered within 30"
    )


def record_requests(transport: ReplayTransport, duration_s: float) -> list[tuple[str, float]]:
    """Return the kind and the time of each request after the first list."""

    async def test() -> None:
        async with aclosing(follow(transport.client(), Watched(NAMESPACE), Random(1))) as news:
            try:
                async with asyncio.timeout(duration_s):
                    async for _ in news:
                        pass
            except TimeoutError:
                return

    in_virtual_time(test)
    kinds = ("watch" if r.query.get("watch") else "list" for r in transport.requests[1:])
    return list(zip(kinds, transport.sent_at_s[1:], strict=True))


def bookmark_stream(*at_s: float) -> Response:
    """Return a watch that sends bookmarks at these times and is then silent."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for before_s, after_s in pairwise((0.0, *at_s)):
            await asyncio.sleep(after_s - before_s)
            yield event("BOOKMARK", namespace("", 5))
        await asyncio.Event().wait()

    return Response(200, stream=chunks())


def test_a_watch_continues_while_it_receives_a_bookmark_per_minute() -> None:
    transport = ReplayTransport(list_response(5), bookmark_stream(60, 120, 180), stream(ADDED))
    requests = record_requests(transport, 180 + IDLE_TIMEOUT_S + 1)
    assert requests == [("watch", 0), ("watch", 180 + IDLE_TIMEOUT_S)]


def test_streams_that_end_at_once_are_reopened_with_backoff() -> None:
    useless = [stream(lives_s=0) for _ in range(6)]
    transport = ReplayTransport(list_response(5), *useless, stream(ADDED))
    collect_items(transport, 2)
    waits = [later - earlier for earlier, later in pairwise(transport.sent_at_s[1:])]
    assert all(wait > 0 for wait in waits)
    assert waits[-1] > 10 * waits[0]


def test_a_quiet_stream_ends_the_backoff_of_earlier_failures() -> None:
    outages = [unreachable() for _ in range(6)]
    quiet = stream(lives_s=20, then="breaks")
    transport = ReplayTransport(list_response(5), *outages, quiet, unreachable(), stream(ADDED))
    collect_items(transport, 2)
    sent_s = transport.sent_at_s  # the list, six failed watches, the quiet stream, two more
    before_quiet_s = sent_s[7] - sent_s[6]
    after_quiet_s = sent_s[8] - sent_s[7] - 20
    assert after_quiet_s < before_quiet_s / 10


def test_an_incomplete_line_at_the_end_of_a_stream_is_not_an_event() -> None:
    later = event("MODIFIED", namespace("a", 8))
    transport = ReplayTransport(list_response(5), stream(ADDED, b'{"type":"ADD'), stream(later))
    assert collect_items(transport, 3) == ["list@5", "ADDED@7", "MODIFIED@8"]
    assert transport.watched_since[2] == "7"


@pytest.mark.parametrize(
    "replayed", [ADDED, event("DELETED", namespace("b", 6)), event("BOOKMARK", namespace("", 6))]
)
def test_an_event_with_an_old_version_is_dropped_and_leads_to_a_new_list(replayed: bytes) -> None:
    newer = event("MODIFIED", namespace("a", 9))
    transport = ReplayTransport(
        list_response(5), stream(ADDED, replayed), list_response(8), stream(newer)
    )
    assert collect_items(transport, 4) == ["list@5", "ADDED@7", "list@8", "MODIFIED@9"]


def test_a_single_list_with_an_older_version_is_dropped() -> None:
    expired = status(410, "Expired")
    transport = ReplayTransport(
        list_response(50), expired, list_response(7), list_response(51), stream()
    )
    assert collect_items(transport, 2) == ["list@50", "list@51"]


def test_repeated_lists_with_an_older_version_are_accepted_after_a_restore() -> None:
    older = [list_response(7) for _ in range(OLDER_LISTS_MAX + 1)]
    later = event("ADDED", namespace("a", 8))
    transport = ReplayTransport(list_response(50), status(410, "Expired"), *older, stream(later))
    assert collect_items(transport, 3) == ["list@50", "list@7", "ADDED@8"]


def test_an_incomplete_list_is_dropped() -> None:
    first = list_response(5, namespace("a", 3), **{"continue": "more"})
    cut: ResponseOrError = list_response(5, namespace("b", 4), remainingItemCount=3)
    whole = list_response(6, namespace("a", 3), namespace("b", 4))
    transport = ReplayTransport(first, unreachable(), first, cut, whole, stream())
    assert collect_items(transport, 1) == ["list@6"]


def test_a_list_without_a_response_times_out() -> None:
    async def test() -> list[float]:
        transport = ReplayTransport()
        async with aclosing(follow(transport.client(), Watched(NAMESPACE))) as news:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(LIST_TIMEOUT_S + 1):
                    await anext(news)
        return transport.sent_at_s

    first, second = in_virtual_time(test)
    assert second > first + LIST_TIMEOUT_S


def wait_for_label(
    transport: ReplayTransport, name: str, timeout_s: float = 60
) -> Namespace | None:
    """Wait for a namespace with this label, or for its deletion if ``name`` is empty."""

    async def test() -> Namespace | None:
        def holds(found: Namespace | None) -> bool:
            return (
                found is None if not name else found is not None and name in found.metadata.labels
            )

        client = transport.client()
        return await client.wait(NAMESPACE, Ref("", "a"), holds, timeout_s=timeout_s)

    return in_virtual_time(test)


def test_wait_returns_at_once_if_the_condition_is_already_true() -> None:
    transport = ReplayTransport(list_response(5, namespace("a", 4, labels={"x": "1"})))
    found = wait_for_label(transport, "x")
    assert found is not None
    assert found.metadata.resource_version == "4"
    assert transport.requests[0].query == {"fieldSelector": "metadata.name=a"}


def test_wait_resumes_a_broken_watch() -> None:
    changed = event("MODIFIED", namespace("a", 9, labels={"x": "1"}))
    transport = ReplayTransport(
        list_response(5, namespace("a", 4)), stream(then="breaks"), stream(changed)
    )
    found = wait_for_label(transport, "x")
    assert found is not None
    assert found.metadata.resource_version == "9"
    assert transport.requests[1].query["fieldSelector"] == "metadata.name=a"


def test_wait_can_wait_for_a_deletion() -> None:
    deleted = event("DELETED", namespace("a", 9))
    assert (
        wait_for_label(ReplayTransport(list_response(5, namespace("a", 4)), stream(deleted)), "")
        is None
    )
    assert wait_for_label(ReplayTransport(list_response(5)), "") is None


def test_the_error_of_a_wait_that_times_out_names_the_object() -> None:
    transport = ReplayTransport(list_response(5, namespace("a", 4)), stream(then="is silent"))
    with pytest.raises(TimeoutError, match="Namespace a did not meet the condition within 7 s"):
        wait_for_label(transport, "x", timeout_s=7)


HOUR_S = 3600.0


def logged_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def follow_for(transport: ReplayTransport, duration_s: float) -> None:
    async def test() -> None:
        async with aclosing(follow(transport.client(), Watched(NAMESPACE), Random(1))) as news:
            try:
                async with asyncio.timeout(duration_s):
                    async for _item in news:
                        pass
            except TimeoutError:
                return

    in_virtual_time(test)


def test_an_unreachable_plane_is_logged_at_once_and_then_every_five_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    transport = ReplayTransport(
        list_response(5), *(unreachable("no answer came") for _ in range(2000))
    )
    follow_for(transport, HOUR_S)
    assert len(transport.requests) > 300, "requests continue"
    first, *reminders = logged_messages(caplog)
    assert first == "namespaces: watch failed, retrying: no answer came"
    assert HOUR_S / REMIND_S - 2 <= len(reminders) <= HOUR_S / REMIND_S
    assert reminders[0] == "namespaces: watch failing for 5 min, retrying: no answer came"
    assert "watch failing for 5" in reminders[-1], "nearly an hour"


def test_the_recovery_of_a_plane_and_its_next_failure_are_logged_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    added = [stream(event("ADDED", namespace("a", 7 + n)), then="breaks") for n in range(2)]
    transport = ReplayTransport(
        list_response(5), unreachable(), unreachable(), added[0], status(503), added[1]
    )
    follow_for(transport, 60)
    broke, back, again, back_again, *_ = logged_messages(caplog)
    assert broke == "namespaces: watch failed, retrying: no answer"
    assert "watch recovered" in back
    assert "retrying" in again
    assert "watch recovered" in back_again


def test_a_kind_that_is_not_served_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    follow_for(ReplayTransport(*(status(404, "NotFound") for _ in range(100))), 600)
    assert logged_messages(caplog) == []


def test_log_messages_contain_the_name_of_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    transport = ReplayTransport(unreachable(), list_response(5))

    async def test() -> None:
        news = follow_mapped(
            transport.client(),
            NAMESPACE,
            lambda obj: obj.metadata.name,
            page_size=10,
            random=Random(1),
            not_served=lambda: None,
            name="cell/dfw: namespaces",
        )
        async with aclosing(news):
            await anext(news)

    in_virtual_time(test)
    assert logged_messages(caplog) == ["cell/dfw: namespaces: watch failed, retrying: no answer"]


def test_a_response_with_retry_after_is_logged_when_it_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that stops must not log a warning for each of its own watches."""
    caplog.set_level(logging.INFO)
    error = ServiceUnavailable("the server is shutting down", retry_after_s=1)
    stopping = json_response(to_status(error), 503)
    follow_for(ReplayTransport(list_response(5), stopping, stream(then="is silent")), 10)
    assert logged_messages(caplog) == []
    follow_for(ReplayTransport(list_response(5), stopping, stopping, stream(then="is silent")), 10)
    assert logged_messages(caplog) == [
        "namespaces: watch failed, retrying: the server is shutting down"
    ]


async def wait_with_deadline(deadlines: Deadlines, seconds: float) -> str:
    task = deadlines.begin()
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        if not deadlines.has_expired(task):
            raise
        return "timed out"
    finally:
        deadlines.end(task)
    return "in time"


def test_each_wait_beyond_the_limit_is_cancelled_at_its_own_deadline() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[str], float]:
        deadlines = Deadlines(10)

        async def wait_later(seconds: float) -> str:
            await asyncio.sleep(4)
            return await wait_with_deadline(deadlines, seconds)

        waits = (
            wait_with_deadline(deadlines, 9),
            wait_with_deadline(deadlines, 100),
            wait_later(9),
            wait_later(100),
        )
        return list(await asyncio.gather(*waits)), loop.time()

    ended, at_s = run_virtual(Random(1), main)
    assert ended == ["in time", "timed out", "in time", "timed out"]
    assert at_s == 14


def test_consecutive_short_waits_do_not_add_up() -> None:
    async def main(loop: VirtualLoop) -> set[str]:
        deadlines = Deadlines(10)
        return {await wait_with_deadline(deadlines, 3) for _ in range(20)}

    assert run_virtual(Random(1), main) == {"in time"}


def test_a_task_can_continue_after_its_deadline_and_be_cancelled_later() -> None:
    async def main(loop: VirtualLoop) -> tuple[list[str], int]:
        deadlines, seen = Deadlines(10), []

        async def work() -> None:
            seen.append(await wait_with_deadline(deadlines, 100))
            await asyncio.sleep(1)
            seen.append("continued")
            await wait_with_deadline(deadlines, 5)

        task = loop.create_task(work())
        await asyncio.sleep(12)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return seen, task.cancelling()

    assert run_virtual(Random(1), main) == (["timed out", "continued"], 1)
