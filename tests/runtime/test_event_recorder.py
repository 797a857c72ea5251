"""EventRecorder: events are deduplicated and limited, their text is escaped, nothing blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from datum_compute.api.errors import Unreachable
from datum_compute.api.events import Event
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import EVENT, NAMESPACE
from datum_compute.api.meta.fields import ObjectReference
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, PlaneName
from datum_compute.runtime.event_recorder import (
    BATCH_DELAY_S,
    BATCH_SIZE,
    BUFFER_MAX,
    BURST,
    MEMBERS_REFILL_S,
    MEMBERS_SHOWN_MAX,
    REFILL_S,
    EventRecorder,
    EventRequest,
)
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

WEB = ObjectReference(api_version="v1", kind="Thing", namespace="default", name="web", uid="u-1")
Test = Callable[["RecorderWorld"], Coroutine[Any, Any, None]]


class RecorderWorld:
    """A recorder on a real server in virtual time."""

    def __init__(self, loop: VirtualLoop, planes: InProcessPlanes) -> None:
        self.loop, self.planes = loop, planes
        self.clock_offset_s = 0.0
        self.registry = CollectorRegistry()
        self.recorder = self.restart()

    def restart(self) -> EventRecorder:
        """Return a new recorder without state, as after a restart."""
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


def run_recorder(test: Test) -> None:
    async def main(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        client = await planes.create()
        await client.create(NAMESPACE, a_namespace("default"))
        await test(RecorderWorld(loop, planes))

    with_planes(main)


def a_request(
    reason: str = "Ready", message: str = "is ready", *, plane: str = HUB, **changes: str
) -> EventRequest:
    return EventRequest(
        PlaneName(plane), msgspec.structs.replace(WEB, **changes), "Normal", reason, message
    )


def test_a_request_becomes_an_event_that_kubectl_describe_finds() -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request("Blocked", "no quota"))
        await asyncio.sleep(1)
        fields = {"involvedObject.uid": "u-1", "involvedObject.kind": "Thing"}
        (event,) = (await at.planes.client().list(EVENT, "default", fields=fields)).items
        assert (event.type, event.reason, event.message) == ("Normal", "Blocked", "no quota")
        assert (event.count, event.source.component) == (1, "compute-manager")
        assert event.first_timestamp == event.last_timestamp is not None

    run_recorder(test)


def test_equal_requests_increase_the_count_also_after_a_restart() -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request())
        at.recorder.record(a_request())
        await asyncio.sleep(60)
        at.recorder.record(a_request())
        (event,) = await at.events()
        assert event.count == 3
        assert event.first_timestamp is not None
        assert event.last_timestamp is not None
        assert event.last_timestamp > event.first_timestamp
        at.task.cancel()
        at.restart().record(a_request())
        (event,) = await at.events()
        assert event.count == 4
        at.recorder.record(a_request(uid="u-2"))

    run_recorder(test)


def test_another_uid_or_message_is_another_event() -> None:
    async def test(at: RecorderWorld) -> None:
        for request in (
            a_request(),
            a_request(uid="u-2"),
            a_request(message="is ready again"),
            a_request("Lost"),
        ):
            at.recorder.record(request)
        assert len(await at.events()) == 4

    run_recorder(test)


@pytest.mark.parametrize("text", ["x" * 5000, "ä" * 5000, "🚀" * 2000, "a" + "🚀" * 2000])
def test_a_long_message_is_cut_between_characters(text: str) -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request(message=text))
        (event,) = await at.events()
        assert 1000 < len(event.message.encode()) <= 1024
        assert event.message.endswith("...")
        assert text.startswith(event.message.removesuffix("..."))

    run_recorder(test)


def test_messages_that_differ_after_the_cut_are_one_event() -> None:
    """The buffer holds the cut messages: a thousand long ones would take much memory."""

    async def test(at: RecorderWorld) -> None:
        for number in range(3):
            at.recorder.record(a_request(message="x" * 100_000 + str(number)))
        assert sum(len(waiting.message) for waiting in at.recorder._buffer) <= 1024
        (event,) = await at.events()
        assert event.count == 3

    run_recorder(test)


@pytest.mark.parametrize("message", [None, 5, b"bytes"])
def test_a_message_that_is_not_text_fails_without_affecting_others(message: Any) -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request(message=message))
        at.recorder.record(a_request(message="valid"))
        assert [event.message for event in await at.events()] == ["valid"]
        assert at.counted("failed") == 1

    run_recorder(test)


def test_user_text_is_not_formatted_and_control_characters_are_escaped() -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request(message="%s %d {0} {name} \x1b[2J\r\nfake \u202e\udc00"))
        (event,) = await at.events()
        assert event.message == r"%s %d {0} {name} \x1b[2J\r\nfake \u202e\udc00"

    run_recorder(test)


def test_an_object_has_a_burst_of_events_and_then_one_in_each_refill_time() -> None:
    async def test(at: RecorderWorld) -> None:
        for number in range(BURST + 10):
            at.recorder.record(a_request(message=f"flap {number}"))
        at.recorder.record(a_request(name="other", uid="u-9"))
        assert len(await at.events()) == BURST + 1
        assert at.counted("limited") == 10
        await asyncio.sleep(REFILL_S)
        at.recorder.record(a_request(message="later"))
        at.recorder.record(a_request(message="too soon"))
        assert len(await at.events()) == BURST + 2

    run_recorder(test)


def test_setting_the_clock_back_does_not_prolong_a_limit() -> None:
    async def test(at: RecorderWorld) -> None:
        for number in range(BURST):
            at.recorder.record(a_request(message=f"flap {number}"))
        at.clock_offset_s = -3600.0
        await asyncio.sleep(REFILL_S)
        at.recorder.record(a_request(message="after the clock was set back"))
        assert at.counted("limited") == 0
        assert len(await at.events()) == BURST + 1

    run_recorder(test)


def test_events_about_members_have_a_separate_budget() -> None:
    """Regression: a deployment scaled from 5 to 40 had no other events for minutes."""

    async def test(at: RecorderWorld) -> None:
        for number in range(BURST + 10):
            at.recorder.record(replace(a_request("Made", "Created"), member=f"web-{number}"))
            await asyncio.sleep(BATCH_DELAY_S * 2)
        assert at.counted("limited") > 0
        at.recorder.record(a_request("Blocked", "no quota"))
        await asyncio.sleep(MEMBERS_REFILL_S)
        at.recorder.record(replace(a_request("Made", "Created"), member="web-later"))
        messages = [event.message for event in await at.events()]
        assert {"no quota", "Created web-later"} <= set(messages)

    run_recorder(test)


def test_many_requests_are_written_in_batches() -> None:
    async def test(at: RecorderWorld) -> None:
        for number in range(BATCH_SIZE + 2):
            at.recorder.record(a_request(uid=f"u-{number}", name=f"web-{number}"))
        await asyncio.sleep(BATCH_DELAY_S * 1.5)
        assert at.counted("written") == BATCH_SIZE
        await asyncio.sleep(BATCH_DELAY_S)
        assert at.counted("written") == BATCH_SIZE + 2

    run_recorder(test)


def test_events_of_many_members_are_one_event_that_lists_them() -> None:
    async def test(at: RecorderWorld) -> None:
        made = replace(a_request("Made", "Created"), member="web-0")
        gone = replace(a_request("Gone", "Removing"), cause="too many")
        for number in range(MEMBERS_SHOWN_MAX + 990):
            at.recorder.record(replace(made, member=f"web-{number}"))
        at.recorder.record(replace(gone, member="web-2"))
        await asyncio.sleep(BATCH_DELAY_S / 2)
        at.recorder.record(replace(gone, member="web-1"))
        counts_by_message = {event.message: event.count for event in await at.events()}
        names = ", ".join(f"web-{number}" for number in range(MEMBERS_SHOWN_MAX))
        assert counts_by_message == {
            f"Created {names} and 990 more": 1,
            "Removing web-2, web-1: too many": 1,
        }
        for member in ("web-1", "web-2", "web-1"):  # in another order
            at.recorder.record(replace(gone, member=member))
        counts = sorted(event.count or 0 for event in await at.events())
        assert counts == [1, 2]
        at.recorder.record(a_request("Blocked", "budget is not used up"))
        assert (len(await at.events()), at.counted("limited")) == (3, 0)

    run_recorder(test)


def test_a_full_buffer_drops_and_counts_instead_of_growing() -> None:
    async def test(at: RecorderWorld) -> None:
        at.task.cancel()
        for number in range(BUFFER_MAX + 5):
            at.recorder.record(a_request(uid=f"u-{number}"))
        assert at.counted("dropped") == 5

    run_recorder(test)


def test_an_unreachable_plane_is_skipped_for_a_time() -> None:
    async def test(at: RecorderWorld) -> None:
        requests = 0

        async def fail(_request: Request) -> Response | None:
            nonlocal requests
            requests += 1
            raise Unreachable("no answer")

        at.planes.intercept = fail
        for number in range(5):
            at.recorder.record(a_request(uid=f"u-{number}"))
        await asyncio.sleep(1)
        assert (requests, at.counted("failed"), at.counted("dropped")) == (1, 1, 4)
        at.planes.intercept = None
        at.clock_offset_s = -3600.0
        await asyncio.sleep(31)
        at.recorder.record(a_request(message="back"))
        assert [e.message for e in await at.events()] == ["back"]

    run_recorder(test)


def test_a_failed_write_is_counted_and_affects_no_other() -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request(namespace="missing"))
        at.recorder.record(a_request(plane="cell/gone"))
        at.recorder.record(a_request(message="valid"))
        assert [e.message for e in await at.events()] == ["valid"]
        assert (at.counted("failed"), at.counted("dropped")) == (1, 1)

    run_recorder(test)


def test_the_count_of_an_expired_event_starts_again() -> None:
    async def test(at: RecorderWorld) -> None:
        at.recorder.record(a_request())
        (event,) = await at.events()
        client = at.planes.client()
        await client.delete(EVENT, Ref("default", event.metadata.name))
        at.recorder.record(a_request())
        (event,) = await at.events()
        assert event.count == 1

    run_recorder(test)
