"""A disk that refuses is told of once when it begins and once when it ends, not at every write."""

from __future__ import annotations

import logging

import pytest

from datum_compute.api.errors import ServiceUnavailable
from datum_compute.store.journal import MemoryJournal
from testkit.conformance.plane import put, refusal, running
from testkit.fakes.journal import FaultyJournal


async def test_one_line_when_writes_begin_to_fail_and_one_when_they_are_taken_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    journal = FaultyJournal(MemoryJournal())
    async with running(journal) as store:
        await put(store, "before")
        assert caplog.records == []
        for _ in range(2):
            for number in range(3):
                journal.fail_next()
                assert await refusal(put(store, f"refused-{number}")) is ServiceUnavailable
            await put(store, f"after-{len(caplog.records)}")
            await put(store, f"later-{len(caplog.records)}")
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in told] == [logging.ERROR, logging.WARNING] * 2
    assert "the disk is full" in told[0][1]
    assert "takes writes again" in told[1][1]
