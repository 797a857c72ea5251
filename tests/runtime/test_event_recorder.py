"""Events for users: deduplicated, limited, harmless text, and never in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from datum_compute.api.corefields import ObjectReference
from datum_compute.api.errors import Unreachable
from datum_compute.api.event import Event
from datum_compute.api.exchange import Request, Response
from datum_compute.api.kinds import EVENT, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.runtime.event_recorder import (
    AT_ONCE,
    BUFFER_MAX,
    BURST,
    MEMBERS_REFILL_S,
    MEMBERS_SHOWN,
    PAUSE_S,
    REFILL_S,
    EventRecorder,
    EventRequest,
)
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

WEB = ObjectReference(api_version="v1", kind="Thing", namespace="default", name="web", uid="u-1")
Story = Callable[["Recording"], Coroutine[Any, Any, None]]


class Recording:
    def __init__(self, loop: VirtualLoop, planes: InProcessPlanes) -> None:
        self.loop, self.planes = loop, planes
        self.clock_offset_s = 0.0
        self.registry = CollectorRegistry()
        self.recorder = self.another()

    def another(self) -> EventRecorder:
        """As after a restart: it remembers nothing."""
        self.registry = CollectorRegistry()
        recorder = EventRecorder(
            lambda plane: self.planes.client() if plane == HUB else None,
            component="compute-manager",
            unix_s=lambda: self.loop.time() + self.clock_offset_s,
            elapsed_s=self.loop.time,
            registry=self.registry,
        )
        self.task = self.loop.create_task(recorder.run())
        return recorder

    async def events(self) -> list[Event]:
        await asyncio.sleep(1)
        return (await self.planes.client().list(EVENT)).items

    def counted(self, outcome: str) -> float:
        return self.registry.get_sample_value("datum_events_total", {"outcome": outcome}) or 0.0


def recording(story: Story) -> None:
    async def main(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("default"))
        await story(Recording(loop, planes))

    with_planes(main)


def notice(
    reason: str = "Ready", note: str = "it is", *, plane: str = HUB, **about: str
) -> EventRequest:
    return EventRequest(
        PlaneName(plane), msgspec.structs.replace(WEB, **about), "Normal", reason, note
    )


def test_a_notice_becomes_an_event_that_describe_finds() -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice("Blocked", "no quota"))
        await asyncio.sleep(1)
        fields = {"involvedObject.uid": "u-1", "involvedObject.kind": "Thing"}
        (event,) = (await at.planes.client().list(EVENT, "default", fields=fields)).items
        assert (event.type, event.reason, event.message) == ("Normal", "Blocked", "no quota")
        assert (event.count, event.source.component) == (1, "compute-manager")
        assert event.first_timestamp == event.last_timestamp is not None

    recording(story)


def test_the_same_notice_counts_instead_of_piling_up_also_after_a_restart() -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice())
        at.recorder.record(notice())
        await asyncio.sleep(60)
        at.recorder.record(notice())
        (event,) = await at.events()
        assert event.count == 3
        assert event.first_timestamp is not None
        assert event.last_timestamp is not None
        assert event.last_timestamp > event.first_timestamp
        at.task.cancel()
        at.another().record(notice())
        (event,) = await at.events()
        assert event.count == 4
        at.recorder.record(notice(uid="u-2"))

    recording(story)


def test_another_life_of_the_object_and_other_words_are_other_events() -> None:
    async def story(at: Recording) -> None:
        for told in (notice(), notice(uid="u-2"), notice(note="it is again"), notice("Lost")):
            at.recorder.record(told)
        assert len(await at.events()) == 4

    recording(story)


@pytest.mark.parametrize("text", ["x" * 5000, "ä" * 5000, "🚀" * 2000, "a" + "🚀" * 2000])
def test_a_long_note_is_cut_between_characters(text: str) -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice(note=text))
        (event,) = await at.events()
        assert 1000 < len(event.message.encode()) <= 1024
        assert event.message.endswith("...")
        assert text.startswith(event.message.removesuffix("..."))

    recording(story)


def test_notes_that_differ_where_they_are_cut_off_are_one_event() -> None:
    """Nor does the buffer keep what nobody will read: a thousand of them would be a lot."""

    async def story(at: Recording) -> None:
        for number in range(3):
            at.recorder.record(notice(note="x" * 100_000 + str(number)))
        assert sum(len(waiting.message) for waiting in at.recorder._waiting) <= 1024
        (event,) = await at.events()
        assert event.count == 3

    recording(story)


@pytest.mark.parametrize("note", [None, 5, b"bytes"])
def test_a_notice_that_is_no_text_fails_nobody(note: Any) -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice(note=note))
        at.recorder.record(notice(note="sound"))
        assert [event.message for event in await at.events()] == ["sound"]
        assert at.counted("failed") == 1

    recording(story)


def test_user_text_is_no_format_and_moves_no_cursor() -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice(note="%s %d {0} {name} \x1b[2J\r\nfake \u202e\udc00"))
        (event,) = await at.events()
        assert event.message == r"%s %d {0} {name} \x1b[2J\r\nfake \u202e\udc00"

    recording(story)


def test_one_object_gets_a_burst_and_then_one_now_and_then() -> None:
    async def story(at: Recording) -> None:
        for number in range(BURST + 10):
            at.recorder.record(notice(note=f"flap {number}"))
        at.recorder.record(notice(name="other", uid="u-9"))
        assert len(await at.events()) == BURST + 1
        assert at.counted("limited") == 10
        await asyncio.sleep(REFILL_S)
        at.recorder.record(notice(note="later"))
        at.recorder.record(notice(note="too soon"))
        assert len(await at.events()) == BURST + 2

    recording(story)


def test_a_clock_that_is_set_back_does_not_prolong_a_limit() -> None:
    async def story(at: Recording) -> None:
        for number in range(BURST):
            at.recorder.record(notice(note=f"flap {number}"))
        at.clock_offset_s = -3600.0
        await asyncio.sleep(REFILL_S)
        at.recorder.record(notice(note="after the clock was set back"))
        assert at.counted("limited") == 0
        assert len(await at.events()) == BURST + 1

    recording(story)


def test_members_that_come_one_by_one_leave_room_for_what_the_object_says() -> None:
    """Seen: a deployment that grew from 5 to 40 had nothing to say for minutes after."""

    async def story(at: Recording) -> None:
        for number in range(BURST + 10):
            at.recorder.record(replace(notice("Made", "Created"), member=f"web-{number}"))
            await asyncio.sleep(PAUSE_S * 2)
        assert at.counted("limited") > 0
        at.recorder.record(notice("Blocked", "no quota"))
        await asyncio.sleep(MEMBERS_REFILL_S)
        at.recorder.record(replace(notice("Made", "Created"), member="web-later"))
        told = [event.message for event in await at.events()]
        assert {"no quota", "Created web-later"} <= set(told)

    recording(story)


def test_a_crowd_is_written_a_few_at_a_time() -> None:
    async def story(at: Recording) -> None:
        for number in range(AT_ONCE + 2):
            at.recorder.record(notice(uid=f"u-{number}", name=f"web-{number}"))
        await asyncio.sleep(PAUSE_S * 1.5)
        assert at.counted("written") == AT_ONCE
        await asyncio.sleep(PAUSE_S)
        assert at.counted("written") == AT_ONCE + 2

    recording(story)


def test_what_happens_to_many_members_of_one_object_is_one_event_with_their_names() -> None:
    async def story(at: Recording) -> None:
        made = replace(notice("Made", "Created"), member="web-0")
        gone = replace(notice("Gone", "Removing"), cause="too many")
        for number in range(MEMBERS_SHOWN + 990):
            at.recorder.record(replace(made, member=f"web-{number}"))
        at.recorder.record(replace(gone, member="web-2"))
        await asyncio.sleep(PAUSE_S / 2)
        at.recorder.record(replace(gone, member="web-1"))
        told = {event.message: event.count for event in await at.events()}
        names = ", ".join(f"web-{number}" for number in range(MEMBERS_SHOWN))
        assert told == {f"Created {names} and 990 more": 1, "Removing web-2, web-1: too many": 1}
        for member in ("web-1", "web-2", "web-1"):  # again, in another order
            at.recorder.record(replace(gone, member=member))
        counts = sorted(event.count or 0 for event in await at.events())
        assert counts == [1, 2]
        at.recorder.record(notice("Blocked", "nor do they use up what the object may say"))
        assert (len(await at.events()), at.counted("limited")) == (3, 0)

    recording(story)


def test_a_full_buffer_drops_and_counts_instead_of_growing() -> None:
    async def story(at: Recording) -> None:
        at.task.cancel()
        for number in range(BUFFER_MAX + 5):
            at.recorder.record(notice(uid=f"u-{number}"))
        assert at.counted("dropped") == 5

    recording(story)


def test_a_plane_that_is_silent_is_left_out_for_a_while() -> None:
    async def story(at: Recording) -> None:
        asked = 0

        async def lost(_request: Request) -> Response | None:
            nonlocal asked
            asked += 1
            raise Unreachable("no answer")

        at.planes.intercept = lost
        for number in range(5):
            at.recorder.record(notice(uid=f"u-{number}"))
        await asyncio.sleep(1)
        assert (asked, at.counted("failed"), at.counted("dropped")) == (1, 1, 4)
        at.planes.intercept = None
        at.clock_offset_s = -3600.0
        await asyncio.sleep(31)
        at.recorder.record(notice(note="back"))
        assert [e.message for e in await at.events()] == ["back"]

    recording(story)


def test_what_cannot_be_written_is_counted_and_ends_nothing() -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice(namespace="nowhere"))
        at.recorder.record(notice(plane="cell/gone"))
        at.recorder.record(notice(note="fine"))
        assert [e.message for e in await at.events()] == ["fine"]
        assert (at.counted("failed"), at.counted("dropped")) == (1, 1)

    recording(story)


def test_an_event_whose_hour_is_over_begins_anew() -> None:
    async def story(at: Recording) -> None:
        at.recorder.record(notice())
        (event,) = await at.events()
        client = at.planes.client()
        await client.delete(EVENT, Ref("default", event.metadata.name))
        at.recorder.record(notice())
        (event,) = await at.events()
        assert event.count == 1

    recording(story)
