"""A watch that resumes, lists again when it must, notices silence and never dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.http import Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.client.client import ANSWER_S
from datum_compute.client.responses import ListResult
from datum_compute.client.watch import LIST_S, OLDER_LISTS, OVERDUE_S, STALL_S, Watched, follow
from tests.client.recorded import (
    Answer,
    Recorded,
    event,
    in_virtual_time,
    listed,
    lost,
    namespace,
    status,
    stream,
)

ADDED = event("ADDED", namespace("a", 7))
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}


def news_of(transport: Recorded, count: int) -> list[str]:
    """The first news, in words."""

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


def test_it_lists_and_then_watches_from_there() -> None:
    transport = Recorded(listed(5), stream(ADDED))
    assert news_of(transport, 2) == ["list@5", "ADDED@7"]
    assert transport.watched_since == ["list", "5"]


def test_a_stream_that_ends_is_resumed_at_the_last_version_seen() -> None:
    bookmark = event("BOOKMARK", namespace("", 9))
    again = event("MODIFIED", namespace("a", 11))
    transport = Recorded(listed(5), stream(ADDED, bookmark), stream(again))
    assert news_of(transport, 4) == ["list@5", "ADDED@7", "BOOKMARK@9", "MODIFIED@11"]
    assert transport.watched_since == ["list", "5", "9"]


@pytest.mark.parametrize(
    "break_",
    [
        stream(ADDED, then="breaks"),
        stream(ADDED, event("ERROR", {"kind": "Status", "code": 503, "message": "busy"})),
    ],
)
def test_a_stream_that_breaks_is_resumed_without_a_new_list(break_: Answer) -> None:
    refused: list[Answer] = [lost(), status(503), status(429, "TooManyRequests")]
    transport = Recorded(listed(5), break_, *refused, stream(event("DELETED", namespace("a", 8))))
    assert news_of(transport, 3) == ["list@5", "ADDED@7", "DELETED@8"]
    assert transport.watched_since == ["list", "5", "7", "7", "7", "7"]


@pytest.mark.parametrize("expired", [status(410, "Expired"), stream(event("ERROR", GONE))])
def test_a_version_that_is_too_old_leads_to_a_new_list(expired: Answer) -> None:
    transport = Recorded(listed(5), expired, listed(50), stream(event("ADDED", namespace("b", 51))))
    assert news_of(transport, 3) == ["list@5", "list@50", "ADDED@51"]
    assert transport.watched_since == ["list", "5", "list", "50"]


@pytest.mark.parametrize(
    "nonsense",
    [
        stream(b"not json\n"),
        stream(event("SURPRISE", {})),
        stream(event("ADDED", {"metadata": {"name": 5}})),
        stream(event("ERROR", {"code": "x"})),
        status(403, "Forbidden"),
        status(500),
    ],
)
def test_an_answer_without_sense_leads_to_a_new_list_and_not_to_the_end(nonsense: Answer) -> None:
    transport = Recorded(listed(5), nonsense, listed(6), stream(ADDED))
    assert news_of(transport, 3) == ["list@5", "list@6", "ADDED@7"]


@pytest.mark.parametrize("nonsense", [listed(5, 3), status(500), lost()])
def test_a_list_that_fails_is_tried_again(nonsense: Answer) -> None:
    transport = Recorded(nonsense, listed(5), stream(ADDED))
    assert news_of(transport, 2) == ["list@5", "ADDED@7"]


def test_silence_is_noticed_within_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    transport = Recorded(listed(5), stream(then="is silent"), stream(ADDED))
    assert news_of(transport, 2) == ["list@5", "ADDED@7"]
    assert transport.watched_since == ["list", "5", "5"]
    assert transport.asked_at_s[-1] == STALL_S < 60
    assert caplog.messages == [], "a quiet plane of Kubernetes is no news, 25 times a minute"


def test_a_server_that_does_not_even_answer_a_watch_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    watches_for(Recorded(listed(5)), 2.5 * ANSWER_S)
    (said,) = caplog.messages
    assert said.startswith("namespaces: no news, trying again: a watch was not answered within 30")


def watches_for(transport: Recorded, duration_s: float) -> list[tuple[str, float]]:
    """What was asked for when: watches, lists and probes."""

    async def test() -> None:
        async with aclosing(follow(transport.client(), Watched(NAMESPACE), Random(1))) as news:
            try:
                async with asyncio.timeout(duration_s):
                    async for _ in news:
                        pass
            except TimeoutError:
                return

    in_virtual_time(test)
    words = ("probe" if r.query.get("limit") else "watch" for r in transport.asked[1:])
    return list(zip(words, transport.asked_at_s[1:], strict=True))


def bookmarks(*at_s: float) -> Response:
    """A watch that brings nothing but bookmarks, then nothing."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for before_s, after_s in pairwise((0.0, *at_s)):
            await asyncio.sleep(after_s - before_s)
            yield event("BOOKMARK", namespace("", 5))
        await asyncio.Event().wait()

    return Response(200, stream=chunks())


def test_a_server_whose_bookmarks_are_a_minute_apart_is_probed_and_keeps_its_watch() -> None:
    silent = [stream(then="is silent"), stream(then="is silent")]
    transport = Recorded(listed(5), *silent, bookmarks(60, 120, 180), *[listed(9)] * 9)
    assert watches_for(transport, 2 * STALL_S + 220) == [
        ("watch", 0),
        ("watch", STALL_S),
        ("watch", 2 * STALL_S),
        *(("probe", 2 * STALL_S + minute * 60 + STALL_S) for minute in range(3)),
    ]


def test_a_slow_server_that_does_not_answer_a_probe_is_noticed_within_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    silent = [stream(then="is silent") for _ in range(3)]
    probed, opened = watches_for(Recorded(listed(5), *silent), 3 * STALL_S + 10)[-2:]
    assert probed == ("probe", 3 * STALL_S)
    assert 4 <= opened[1] - probed[1] < 5, "another watch, at once"
    assert "a quiet watch, and no answer within 4 s" in caplog.messages[0]


def test_a_slow_server_whose_bookmark_is_overdue_gets_another_watch() -> None:
    silent = [stream(then="is silent"), stream(then="is silent")]
    last = bookmarks(60)
    transport = Recorded(listed(5), *silent, last, listed(9), listed(9), stream(ADDED))
    asked = watches_for(transport, 2 * STALL_S + 60 + OVERDUE_S + 1)
    assert asked[-1] == ("watch", 2 * STALL_S + 60 + OVERDUE_S)


def test_a_server_whose_bookmarks_come_sooner_is_not_waited_for() -> None:
    silent = [stream(then="is silent"), stream(then="is silent")]
    transport = Recorded(listed(5), *silent, bookmarks(30, 60), bookmarks(30, 60))
    opened = [at_s for _, at_s in watches_for(transport, 300)]
    assert opened == [0, STALL_S, 2 * STALL_S, 2 * STALL_S + 60 + STALL_S]


def test_streams_that_end_at_once_are_not_reopened_in_a_circle() -> None:
    useless = [stream(lives_s=0) for _ in range(6)]
    transport = Recorded(listed(5), *useless, stream(ADDED))
    news_of(transport, 2)
    waits = [later - earlier for earlier, later in pairwise(transport.asked_at_s[1:])]
    assert all(wait > 0 for wait in waits)
    assert waits[-1] > 10 * waits[0]


def test_a_half_line_at_the_end_of_a_stream_is_not_an_event() -> None:
    later = event("MODIFIED", namespace("a", 8))
    transport = Recorded(listed(5), stream(ADDED, b'{"type":"ADD'), stream(later))
    assert news_of(transport, 3) == ["list@5", "ADDED@7", "MODIFIED@8"]
    assert transport.watched_since[2] == "7"


@pytest.mark.parametrize(
    "replayed", [ADDED, event("DELETED", namespace("b", 6)), event("BOOKMARK", namespace("", 6))]
)
def test_what_is_not_newer_is_kept_back_and_leads_to_a_new_list(replayed: bytes) -> None:
    newer = event("MODIFIED", namespace("a", 9))
    transport = Recorded(listed(5), stream(ADDED, replayed), listed(8), stream(newer))
    assert news_of(transport, 4) == ["list@5", "ADDED@7", "list@8", "MODIFIED@9"]


def test_one_list_older_than_what_was_seen_is_not_believed() -> None:
    expired = status(410, "Expired")
    transport = Recorded(listed(50), expired, listed(7), listed(51), stream())
    assert news_of(transport, 2) == ["list@50", "list@51"]


def test_a_plane_that_insists_on_older_versions_was_restored() -> None:
    older = [listed(7) for _ in range(OLDER_LISTS + 1)]
    later = event("ADDED", namespace("a", 8))
    transport = Recorded(listed(50), status(410, "Expired"), *older, stream(later))
    assert news_of(transport, 3) == ["list@50", "list@7", "ADDED@8"]


def test_a_list_that_lacks_objects_is_not_handed_on() -> None:
    first = listed(5, namespace("a", 3), **{"continue": "more"})
    cut: Answer = listed(5, namespace("b", 4), remainingItemCount=3)
    whole = listed(6, namespace("a", 3), namespace("b", 4))
    transport = Recorded(first, lost(), first, cut, whole, stream())
    assert news_of(transport, 1) == ["list@6"]


def test_a_list_that_hangs_is_given_up() -> None:
    async def test() -> list[float]:
        transport = Recorded()
        async with aclosing(follow(transport.client(), Watched(NAMESPACE))) as news:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(LIST_S + 1):
                    await anext(news)
        return transport.asked_at_s

    first, second = in_virtual_time(test)
    assert second > first + LIST_S


def wait(transport: Recorded, name: str, timeout_s: float = 60) -> Namespace | None:
    """Wait for the label x, or for nobody when the name is empty."""

    async def test() -> Namespace | None:
        def holds(found: Namespace | None) -> bool:
            return (
                found is None if not name else found is not None and name in found.metadata.labels
            )

        client = transport.client()
        return await client.wait(NAMESPACE, Ref("", "a"), holds, timeout_s=timeout_s)

    return in_virtual_time(test)


def test_wait_ends_at_once_when_the_condition_holds_already() -> None:
    transport = Recorded(listed(5, namespace("a", 4, labels={"x": "1"})))
    found = wait(transport, "x")
    assert found is not None
    assert found.metadata.resource_version == "4"
    assert transport.asked[0].query == {"fieldSelector": "metadata.name=a"}


def test_wait_sees_a_later_change_through_a_broken_watch() -> None:
    changed = event("MODIFIED", namespace("a", 9, labels={"x": "1"}))
    transport = Recorded(listed(5, namespace("a", 4)), stream(then="breaks"), stream(changed))
    found = wait(transport, "x")
    assert found is not None
    assert found.metadata.resource_version == "9"
    assert transport.asked[1].query["fieldSelector"] == "metadata.name=a"


def test_wait_can_wait_for_absence() -> None:
    deleted = event("DELETED", namespace("a", 9))
    assert wait(Recorded(listed(5, namespace("a", 4)), stream(deleted)), "") is None
    assert wait(Recorded(listed(5)), "") is None


def test_wait_is_bounded_and_says_what_did_not_come() -> None:
    transport = Recorded(listed(5, namespace("a", 4)), stream(then="is silent"))
    with pytest.raises(TimeoutError, match="Namespace a was not as awaited within 7 s"):
        wait(transport, "x", timeout_s=7)
