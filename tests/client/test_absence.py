"""What the log says of a plane that is away: little, and in time."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from random import Random

import pytest

from datum_compute.api.errors import ServiceUnavailable, to_status
from datum_compute.api.kinds import NAMESPACE
from datum_compute.client.watch import REMIND_S, Watched, follow, follow_mapped
from tests.client.recorded import (
    Recorded,
    answer,
    event,
    in_virtual_time,
    listed,
    lost,
    namespace,
    status,
    stream,
)

HOUR_S = 3600.0


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]


def follow_for(transport: Recorded, duration_s: float) -> None:
    async def test() -> None:
        async with aclosing(follow(transport.client(), Watched(NAMESPACE), Random(1))) as news:
            try:
                async with asyncio.timeout(duration_s):
                    async for _item in news:
                        pass
            except TimeoutError:
                return

    in_virtual_time(test)


def test_a_plane_that_is_away_for_an_hour_is_told_of_at_once_and_then_every_five_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    transport = Recorded(listed(5), *(lost("no answer came") for _ in range(2000)))
    follow_for(transport, HOUR_S)
    assert len(transport.asked) > 300, "it is tried all the same"
    first, *reminders = said(caplog)
    assert first == "namespaces: no news, trying again: no answer came"
    assert HOUR_S / REMIND_S - 2 <= len(reminders) <= HOUR_S / REMIND_S
    assert reminders[0] == "namespaces: no news for 5 min, trying again: no answer came"
    assert "no news for 5" in reminders[-1], "nearly an hour"


def test_that_it_is_back_is_said_once_and_the_next_absence_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    added = [stream(event("ADDED", namespace("a", 7 + n)), then="breaks") for n in range(2)]
    transport = Recorded(listed(5), lost(), lost(), added[0], status(503), added[1])
    follow_for(transport, 60)
    broke, back, again, back_again, *_ = said(caplog)
    assert broke == "namespaces: no news, trying again: no answer"
    assert "there is news again" in back
    assert "trying again" in again
    assert "there is news again" in back_again


def test_a_kind_that_is_not_served_is_no_absence(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    follow_for(Recorded(*(status(404, "NotFound") for _ in range(100))), 600)
    assert said(caplog) == []


def test_it_is_told_by_the_name_that_the_reader_gave(caplog: pytest.LogCaptureFixture) -> None:
    transport = Recorded(lost(), listed(5))

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
    assert said(caplog) == ["cell/dfw: namespaces: no news, trying again: no answer"]


def test_a_server_that_asks_to_come_again_is_away_only_if_it_does_so_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seen: one that was stopped logged a warning for each of its own 69 watches."""
    caplog.set_level(logging.INFO)
    error = ServiceUnavailable("the server is shutting down", retry_after_s=1)
    stopping = answer(to_status(error), 503)
    follow_for(Recorded(listed(5), stopping, stream(then="is silent")), 10)
    assert said(caplog) == []
    follow_for(Recorded(listed(5), stopping, stopping, stream(then="is silent")), 10)
    assert said(caplog) == ["namespaces: no news, trying again: the server is shutting down"]
