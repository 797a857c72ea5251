"""A cache that follows its plane through everything a watch can do."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from itertools import pairwise
from random import Random

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import HUB
from datum_compute.client.quiet import STALL_S
from datum_compute.client.transport import is_watch
from datum_compute.client.watching import NOT_SERVED_S, OLDER_LISTS
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.informer import PAGE_SIZE, Informer, ObjectChange
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.client.recorded import Answer, Recorded, event, listed, lost, namespace, status, stream
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes


def names(informer: Informer[Namespace]) -> list[str]:
    return sorted(ref.name for ref in informer.cache.refs())


async def an_informer(loop: VirtualLoop, planes: InProcessPlanes) -> Informer[Namespace]:
    informer = Informer(await planes.create(), NAMESPACE, Random(1))
    loop.create_task(informer.run())
    await informer.first_sync.wait()
    return informer


def test_it_follows_creates_changes_and_deletes() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        informer = await an_informer(loop, planes)
        seen: list[str] = []

        def note(change: ObjectChange[Namespace]) -> None:
            seen.append(f"{'+' if change.old is None else ''}{'-' if change.new is None else ''}")

        informer.subscribe(note)
        client = planes.client()
        await client.create(NAMESPACE, a_namespace("a"))
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "y"}}})
        await asyncio.sleep(1)
        assert informer.cache.with_label("x", "y")
        return seen

    assert with_planes(test) == ["+", ""]


def test_it_lists_again_when_its_place_in_the_history_is_gone() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], int]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        lists = 0

        async def end_watches_at_once(request: Request) -> Response | None:
            nonlocal lists
            lists += not request.query.get("watch") and request.method == "GET"
            if request.query.get("watch") and len(informer.cache) == 1:
                await asyncio.sleep(20)  # meanwhile the history moves on
            return None

        planes.intercept = end_watches_at_once
        await client.create(NAMESPACE, a_namespace("old"))
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        for number in range(60):  # the window of these planes is 20
            await planes.client().create(NAMESPACE, a_namespace(f"n{number}"))
        await asyncio.sleep(60)
        return names(informer), lists

    found, lists = with_planes(test)
    assert len(found) == 61
    assert lists == 2


def test_a_watch_that_goes_quiet_is_replaced() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], list[str]]:
        client = await planes.create()
        informer = Informer(client, NAMESPACE, Random(1))
        stalled = True

        async def silence() -> AsyncGenerator[bytes, None]:
            await asyncio.Event().wait()
            yield b""

        async def stall(request: Request) -> Response | None:
            if stalled and request.query.get("watch"):
                return Response(200, stream=silence())
            return None

        planes.intercept = stall
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        await client.create(NAMESPACE, a_namespace("a"))
        await asyncio.sleep(1)
        before = names(informer)
        stalled = False
        await asyncio.sleep(STALL_S + 1)
        return before, names(informer)

    assert with_planes(test) == ([], ["a"])


def test_an_unreachable_plane_is_tried_again_and_the_log_names_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        informer = CachedClient(HUB, await planes.create(), Random(1)).declare(NAMESPACE)
        failures = 3

        async def fail_first(request: Request) -> Response | None:
            nonlocal failures
            failures -= 1
            if failures >= 0:
                raise Unreachable("not yet")
            return None

        planes.intercept = fail_first
        loop.create_task(informer.run())
        await informer.first_sync.wait()
        return informer.synced

    assert with_planes(test)
    assert caplog.messages[0].startswith("hub: namespaces: no news, trying again: ")


def test_caught_up_waits_for_a_version_and_gives_up_in_time() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, bool]:
        informer = await an_informer(loop, planes)
        created = await planes.client().create(NAMESPACE, a_namespace("a"))
        return (
            await informer.wait_for_version(created.version, 1),
            await informer.wait_for_version(created.version + 100, 1),
        )

    assert with_planes(test) == (True, False)


def test_who_waits_is_not_woken_by_other_news_nor_by_enough_that_did_not_last() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[bool, float]:
        informer = await an_informer(loop, planes)
        enough = iter([False, True, False, False, True, True])
        waiting = loop.create_task(informer.wait_for(lambda: next(enough), 10))
        begun_s = loop.time()
        for number in range(3):
            await asyncio.sleep(1)
            await planes.client().create(NAMESPACE, a_namespace(f"n{number}"))
        return await waiting, loop.time() - begun_s

    # Asked at first, at the first news and by who was woken, at the second, and twice at the third.
    woken, after_s = with_planes(test)
    assert woken
    assert after_s >= 3


def test_a_nudge_is_as_good_as_news() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        informer = await an_informer(loop, planes)
        settled = asyncio.Event()
        waiting = loop.create_task(informer.wait_for(settled.is_set, 10))
        await asyncio.sleep(1)
        settled.set()
        informer.notify_waiters()
        await asyncio.sleep(1)
        return waiting.done() and waiting.result()

    assert with_planes(test)


# --- what replaces what: prepared answers tell the story


class Told:
    """An informer over prepared answers, and what it tells."""

    def __init__(self, *answers: Answer) -> None:
        self.transport = Recorded(*answers)
        self.informer = Informer(self.transport.client(), NAMESPACE, Random(1))
        self.changes: list[str] = []
        self.informer.subscribe(self._note)

    def _note(self, change: ObjectChange[Namespace]) -> None:
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


def test_a_new_list_tells_what_is_gone_what_changed_and_what_is_new() -> None:
    first = listed(5, namespace("a", 1), namespace("b", 2), namespace("c", 3))
    second = listed(9, namespace("b", 2), namespace("c", 8), namespace("d", 9))
    told = Told(first, EXPIRED, second, stream(then="is silent"))
    assert told.after(10) == ["+a", "+b", "+c", "-a", "~c", "+d"]


@pytest.mark.parametrize("as_event", [False, True])
def test_a_plane_that_forgets_its_history_again_and_again_is_not_listed_in_a_circle(
    as_event: bool,
) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    expired = stream(event("ERROR", gone)) if as_event else EXPIRED
    storm = [answer for version in range(5, 400) for answer in (listed(version), expired)]
    told = Told(*storm)
    told.after(60)
    assert 4 < len(told.transport.asked) < 60


def test_the_same_name_with_another_uid_is_one_that_is_gone_and_one_that_is_new() -> None:
    first = listed(5, namespace("a", 1, uid="one"), namespace("b", 2, uid="two"))
    second = listed(9, namespace("a", 8, uid="three"), namespace("b", 2, uid="two"))
    again = event("MODIFIED", namespace("b", 10, uid="four"))
    told = Told(first, EXPIRED, second, stream(again, then="is silent"))
    assert told.after(10) == ["+a:one", "+b:two", "-a:one", "+a:three", "-b:two", "+b:four"]


def test_replayed_events_change_nothing() -> None:
    events = [event("DELETED", namespace("a", 7)), event("ADDED", namespace("a", 5))]
    told = Told(listed(5, namespace("a", 5)), stream(*events), listed(8), stream(then="is silent"))
    assert told.after(10) == ["+a", "-a"]


@pytest.mark.parametrize("break_", [lost(), status(500), status(410, "Expired")])
def test_a_list_that_breaks_between_its_pages_replaces_nothing(break_: Answer) -> None:
    half = listed(9, namespace("a", 1), **{"continue": "more"})
    told = Told(listed(5, namespace("a", 1), namespace("b", 2)), EXPIRED, half, break_)
    assert told.after(60) == ["+a", "+b"]
    assert [r.query.get("limit") for r in told.transport.asked][:1] == [str(PAGE_SIZE)]


def test_a_plane_restored_from_a_backup_is_taken_as_it_is_now() -> None:
    older = [listed(7, namespace("old", 6)) for _ in range(OLDER_LISTS + 1)]
    later = event("ADDED", namespace("new", 8))
    told = Told(
        listed(50, namespace("young", 49)), EXPIRED, *older, stream(later, then="is silent")
    )
    assert told.after(20) == ["+young", "-young", "+old", "+new"]
    assert (told.informer.version, told.informer.epoch) == (8, 2)


POISON = {"metadata": {"name": "poison", "resourceVersion": "4", "labels": {}}, "spec": 5}


def test_an_object_that_cannot_be_decoded_stops_neither_list_nor_watch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = [
        event("ADDED", {**POISON, "metadata": {"name": "worse", "resourceVersion": "8"}}),
        event("ADDED", namespace("b", 9)),
        event("MODIFIED", namespace("poison", 10)),
        event("DELETED", {**POISON, "metadata": {"name": "worse", "resourceVersion": "11"}}),
    ]
    told = Told(listed(7, namespace("a", 3), POISON), stream(*events, then="is silent"))
    assert told.after(10) == ["+a", "+b", "+poison"]
    assert names(told.informer) == ["a", "b", "poison"]
    assert len(told.transport.asked) == 2, "it costs no new list"
    assert "poison cannot be read" in caplog.text


def test_who_knew_an_object_hears_that_it_cannot_be_read_any_more() -> None:
    """Or else nobody would ever look again for what is deleted while it cannot be read."""
    poisoned = {**POISON, "metadata": {"name": "a", "resourceVersion": "8"}}
    gone = {**POISON, "metadata": {"name": "a", "resourceVersion": "9"}}
    events = [event("MODIFIED", poisoned), event("DELETED", gone)]
    told = Told(listed(7, namespace("a", 3)), stream(*events, then="is silent"))
    assert told.after(10) == ["+a", "-a"]
    assert names(told.informer) == []


def test_a_kind_that_is_not_served_is_answered_and_picked_up_when_it_appears() -> None:
    missing = [status(404, "NotFound") for _ in range(3)]
    told = Told(*missing, listed(5, namespace("a", 1)), stream(then="is silent"))

    async def main(loop: VirtualLoop) -> tuple[bool, bool, bool]:
        informer = told.informer
        loop.create_task(informer.run())
        await informer.answered.wait()
        before = (informer.served, informer.synced)
        await informer.first_sync.wait()
        return (*before, informer.synced)

    assert run_virtual(Random(1), main) == (False, False, True)
    waits = [after - before for before, after in pairwise(told.transport.asked_at_s[:4])]
    assert all(NOT_SERVED_S <= wait <= 2 * NOT_SERVED_S for wait in waits)


def test_its_age_is_the_time_since_the_plane_last_spoke() -> None:
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
        ages.append(informer.age())  # bookmarks come twice a minute
        return ages

    before, at_once, later, much_later = with_planes(test)
    assert before == math.inf
    assert at_once == 0
    assert later == 10
    assert much_later <= 30


def test_nothing_of_managed_fields_is_kept() -> None:
    noise = {"manager": "somebody", "fieldsV1": {"f:metadata": {}}}
    told = Told(
        listed(5, namespace("a", 1, managedFields=[noise])),
        stream(event("ADDED", namespace("b", 6, managedFields=[noise])), then="is silent"),
    )
    assert told.after(5) == ["+a", "+b"]
    assert all(b"managed" not in entry.body for entry in told.informer.cache.entries())


def test_what_the_stream_brings_late_does_not_undo_a_refresh() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str | None]:
        released = asyncio.Event()

        async def lag(request: Request, response: Response) -> Response:
            if is_watch(request):
                await released.wait()
            return response

        planes.afterwards = lag
        informer = await an_informer(loop, planes)
        client, seen = planes.client(), list[str | None]()
        informer.subscribe(lambda change: seen.append(change.latest.metadata.labels.get("x")))
        await client.create(NAMESPACE, a_namespace("a", x="first"))
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "second"}}})
        await informer.refresh()
        released.set()
        await asyncio.sleep(1)
        await client.patch(NAMESPACE, Ref("", "a"), {"metadata": {"labels": {"x": "third"}}})
        await asyncio.sleep(1)
        return seen

    assert with_planes(test) == ["second", "third"]
