"""Informer: the cache follows the plane through every way in which a watch can fail."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from datum_compute.client.transport.interface import is_watch
from datum_compute.client.watch import IDLE_TIMEOUT_S, NOT_SERVED_RETRY_S, OLDER_LISTS_MAX
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.informer import PAGE_SIZE, Informer, ObjectChange
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.client.replay_transport import (
    ReplayTransport,
    ResponseOrError,
    event,
    list_response,
    namespace,
    status,
    stream,
    unreachable,
)
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes


def names(informer: Informer[Namespace]) -> list[str]:
    return sorted(ref.name for ref in informer.cache.refs())


async def an_informer(loop: VirtualLoop, planes: InProcessPlanes) -> Informer[Namespace]:
    informer = Informer(await planes.create(), NAMESPACE, Random(1))
    loop.create_task(informer.run())
    await informer.first_sync.wait()
    return informer


def test_the_cache_follows_creates_changes_and_deletes() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        informer = await an_informer(loop, planes)
        seen: list[str] = []

        def record(change: ObjectChange[Namespace]) -> None:
            seen.append(f"{'+' if change.old is None else ''}{'-' if change.new is None else ''}")

        informer.subscribe(record)
        client = planes.client()
        await client.create(NAMESPACE, a_namespace("a"))
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(1)
        assert informer.cache.list_with_label("x", "y")
        return seen

    assert with_planes(test) == ["+", ""]


def test_the_informer_lists_again_after_its_version_was_compacted() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], int]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        lists = 0

        async def delay_watches(request: Request) -> Response | None:
            nonlocal lists
            lists += not request.query.get("watch") and request.method == "GET"
            if request.query.get("watch") and len(informer.cache) == 1:
                await asyncio.sleep(20)  # meanwhile the version is compacted
            return None

        planes.intercept = delay_watches
        await client.create(NAMESPACE, a_namespace("old"))
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        for number in range(60):  # more than the watch window of 20 events
            await planes.client().create(NAMESPACE, a_namespace(f"n{number}"))
        await asyncio.sleep(60)
        return names(informer), lists

    found, lists = with_planes(test)
    assert len(found) == 61
    assert lists == 2


def test_a_watch_without_events_and_bookmarks_is_replaced() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], list[str]]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        stalled = True

        async def stream_nothing() -> AsyncGenerator[bytes, None]:
            await asyncio.Event().wait()
            yield b""

        async def stall(request: Request) -> Response | None:
            if stalled and request.query.get("watch"):
                return Response(200, stream=stream_nothing())
            return None

        planes.intercept = stall
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await client.create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(1)
        before = names(informer)
        stalled = False
        await asyncio.sleep(IDLE_TIMEOUT_S + 1)
        return before, names(informer)

    assert with_planes(test) == ([], ["a"])


def test_an_unreachable_plane_is_retried_and_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        informer = CachedClient(HUB, await planes.create(), Random(1)).declare(NAMESPACE)
        failures = 3

        async def fail_first(request: Request) -> Response | None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise Unreachable("down")
            return None

        planes.intercept = fail_first
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        return informer.is_synced

    assert with_planes(test)
    assert caplog.messages[0].startswith("hub: namespaces: watch failed, retrying: ")


def test_wait_for_version_returns_at_the_version_or_on_timeout() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        informer = await an_informer(loop, planes)
        created = await planes.client().create(NAMESPACE, a_namespace("a"))
        return (
            await informer.wait_for_version(created.version, 1),
            await informer.wait_for_version(created.version + 100, 1),
        )

    assert with_planes(test) == (True, False)


def test_a_waiter_continues_only_if_its_condition_is_still_true() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, float]:
        informer = await an_informer(loop, planes)
        answers = iter([False, True, False, False, True, True])
        waiting = loop.create_task(informer.wait_for(lambda: next(answers), 10))
        started_s = loop.time()
        for number in range(3):
            await asyncio.sleep(1)
            await planes.client().create(NAMESPACE, a_namespace(f"n{number}"))
        return await waiting, loop.time() - started_s

    # Checked once at the start, twice at the first event (by the informer and by the waiter), once
    # at the second and twice at the third.
    is_done, after_s = with_planes(test)
    assert is_done
    assert after_s >= 3


def test_notify_waiters_wakes_a_waiter_without_an_event() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        informer = await an_informer(loop, planes)
        condition = asyncio.Event()
        waiting = loop.create_task(informer.wait_for(condition.is_set, 10))
        await asyncio.sleep(1)
        condition.set()
        informer.notify_waiters()
        await asyncio.sleep(1)
        return waiting.done() and waiting.result()

    assert with_planes(test)


# --- lists and events, with recorded responses


class RecordedInformer:
    """An informer on recorded responses, with the changes that it reports."""

    def __init__(self, *answers: ResponseOrError) -> None:
        self.transport = ReplayTransport(*answers)
        self.informer = Informer(self.transport.client(), NAMESPACE, Random(1))
        self.changes: list[str] = []
        self.informer.subscribe(self._record)

    def _record(self, change: ObjectChange[Namespace]) -> None:
        sign = "+" if change.old is None else "-" if change.new is None else "~"
        metadata = change.latest.metadata
        self.changes.append(f"{sign}{metadata.name}{metadata.uid and ':' + metadata.uid}")

    def after(self, seconds: float) -> list[str]:
        async def main(loop: VirtualLoop) -> list[str]:
            loop.create_task(self.informer.run())
            await asyncio.sleep(seconds)
            return self.changes

        return run_virtual(Random(1), main)


EXPIRED = status(410, "Expired")


def test_a_new_list_reports_deleted_changed_and_new_objects() -> None:
    first = list_response(5, namespace("a", 1), namespace("b", 2), namespace("c", 3))
    second = list_response(9, namespace("b", 2), namespace("c", 8), namespace("d", 9))
    recorded = RecordedInformer(first, EXPIRED, second, stream(then="is silent"))
    assert recorded.after(10) == ["+a", "+b", "+c", "-a", "~c", "+d"]


@pytest.mark.parametrize("as_event", [False, True])
def test_a_plane_that_always_responds_expired_is_listed_with_backoff(
    as_event: bool,
) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    expired = stream(event("ERROR", gone)) if as_event else EXPIRED
    storm = [answer for version in range(5, 400) for answer in (list_response(version), expired)]
    recorded = RecordedInformer(*storm)
    recorded.after(60)
    assert 4 < len(recorded.transport.requests) < 60


def test_another_uid_under_the_same_name_is_a_deletion_and_a_creation() -> None:
    first = list_response(5, namespace("a", 1, uid="one"), namespace("b", 2, uid="two"))
    second = list_response(9, namespace("a", 8, uid="three"), namespace("b", 2, uid="two"))
    again = event("MODIFIED", namespace("b", 10, uid="four"))
    recorded = RecordedInformer(first, EXPIRED, second, stream(again, then="is silent"))
    assert recorded.after(10) == ["+a:one", "+b:two", "-a:one", "+a:three", "-b:two", "+b:four"]


def test_replayed_events_are_dropped() -> None:
    events = [event("DELETED", namespace("a", 7)), event("ADDED", namespace("a", 5))]
    recorded = RecordedInformer(
        list_response(5, namespace("a", 5)),
        stream(*events),
        list_response(8),
        stream(then="is silent"),
    )
    assert recorded.after(10) == ["+a", "-a"]


@pytest.mark.parametrize("failure", [unreachable(), status(500), status(410, "Expired")])
def test_a_list_that_fails_between_two_pages_replaces_nothing(failure: ResponseOrError) -> None:
    half = list_response(9, namespace("a", 1), **{"continue": "more"})
    recorded = RecordedInformer(
        list_response(5, namespace("a", 1), namespace("b", 2)), EXPIRED, half, failure
    )
    assert recorded.after(60) == ["+a", "+b"]
    assert [r.query.get("limit") for r in recorded.transport.requests][:1] == [str(PAGE_SIZE)]


def test_the_state_of_a_restored_plane_replaces_the_cache() -> None:
    older = [list_response(7, namespace("old", 6)) for _ in range(OLDER_LISTS_MAX + 1)]
    later = event("ADDED", namespace("new", 8))
    recorded = RecordedInformer(
        list_response(50, namespace("young", 49)), EXPIRED, *older, stream(later, then="is silent")
    )
    assert recorded.after(20) == ["+young", "-young", "+old", "+new"]
    assert (recorded.informer.version, recorded.informer.epoch) == (8, 2)


UNREADABLE = {"metadata": {"name": "unreadable", "resourceVersion": "4", "labels": {}}, "spec": 5}


def test_an_object_that_cannot_be_decoded_stops_neither_list_nor_watch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = [
        event(
            "ADDED", {**UNREADABLE, "metadata": {"name": "unreadable-2", "resourceVersion": "8"}}
        ),
        event("ADDED", namespace("b", 9)),
        event("MODIFIED", namespace("unreadable", 10)),
        event(
            "DELETED", {**UNREADABLE, "metadata": {"name": "unreadable-2", "resourceVersion": "11"}}
        ),
    ]
    recorded = RecordedInformer(
        list_response(7, namespace("a", 3), UNREADABLE), stream(*events, then="is silent")
    )
    assert recorded.after(10) == ["+a", "+b", "+unreadable"]
    assert names(recorded.informer) == ["a", "b", "unreadable"]
    assert len(recorded.transport.requests) == 2, "no further list"
    assert "unreadable cannot be decoded" in caplog.text


def test_an_object_that_becomes_unreadable_is_reported_as_deleted() -> None:
    """Otherwise its deletion, while it is unreadable, would not be reported at all."""
    changed = {**UNREADABLE, "metadata": {"name": "a", "resourceVersion": "8"}}
    gone = {**UNREADABLE, "metadata": {"name": "a", "resourceVersion": "9"}}
    events = [event("MODIFIED", changed), event("DELETED", gone)]
    recorded = RecordedInformer(
        list_response(7, namespace("a", 3)), stream(*events, then="is silent")
    )
    assert recorded.after(10) == ["+a", "-a"]
    assert names(recorded.informer) == []


def test_a_kind_that_is_not_served_counts_as_answered_and_syncs_when_it_is_served() -> None:
    missing = [status(404, "NotFound") for _ in range(3)]
    recorded = RecordedInformer(
        *missing, list_response(5, namespace("a", 1)), stream(then="is silent")
    )

    async def main(loop: VirtualLoop) -> tuple[bool, bool, bool]:
        informer = recorded.informer
        loop.create_task(informer.run())
        await informer.answered.wait()
        before = (informer.is_served, informer.is_synced)
        await informer.first_sync.wait()
        return (*before, informer.is_synced)

    assert run_virtual(Random(1), main) == (False, False, True)
    waits = [after - before for before, after in pairwise(recorded.transport.sent_at_s[:4])]
    assert all(NOT_SERVED_RETRY_S <= wait <= 2 * NOT_SERVED_RETRY_S for wait in waits)


def test_age_is_the_time_since_the_last_event_or_bookmark() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[float]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        ages = [informer.age()]
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        ages.append(informer.age())
        await asyncio.sleep(10)
        ages.append(informer.age())
        await asyncio.sleep(200)
        ages.append(informer.age())  # the server sends two bookmarks a minute
        return ages

    before, at_sync, later, much_later = with_planes(test)
    assert before == math.inf
    assert at_sync == 0
    assert later == 10
    assert much_later <= 30


def test_managed_fields_are_not_cached() -> None:
    noise = {"manager": "other", "fieldsV1": {"f:metadata": {}}}
    recorded = RecordedInformer(
        list_response(5, namespace("a", 1, managedFields=[noise])),
        stream(event("ADDED", namespace("b", 6, managedFields=[noise])), then="is silent"),
    )
    assert recorded.after(5) == ["+a", "+b"]
    assert all(b"managed" not in entry.body for entry in recorded.informer.cache.entries())


def test_a_late_event_does_not_undo_a_refresh() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str | None]:
        resumed = asyncio.Event()

        async def delay_watch(request: Request, response: Response) -> Response:
            if is_watch(request):
                await resumed.wait()
            return response

        planes.afterwards = delay_watch
        informer = await an_informer(loop, planes)
        client, seen = planes.client(), list[str | None]()
        informer.subscribe(lambda change: seen.append(change.latest.metadata.labels.get("x")))
        await client.create(NAMESPACE, a_namespace("a", x="first"))
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "second"}}})
        await informer.refresh()
        resumed.set()
        await asyncio.sleep(1)
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "third"}}})
        await asyncio.sleep(1)
        return seen

    assert with_planes(test) == ["second", "third"]
