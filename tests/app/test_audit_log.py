"""The audit log on disk: private, limited in size, with a count of lost lines."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from datum_compute.api.meta import codec
from datum_compute.app import audit_log
from datum_compute.app.audit_log import AuditLog
from datum_compute.server.access.audit import AuditEvent

EVENT = AuditEvent(
    time_s=1_700_000_000.25,
    request_id="r1",
    user="ann",
    impersonated_user="",
    plane="hub",
    verb="create",
    group="",
    resource="secrets",
    subresource="",
    namespace="default",
    name="s",
    path="",
    code=201,
    reason="",
    duration_s=0.0015,
)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


async def test_a_line_contains_user_and_request_and_omits_empty_fields(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.record(EVENT)
    await log.flush()
    assert read_lines(tmp_path / "audit.log") == [
        {
            "time": "2023-11-14T22:13:20.250000Z",
            "requestID": "r1",
            "user": "ann",
            "plane": "hub",
            "verb": "create",
            "resource": "secrets",
            "namespace": "default",
            "name": "s",
            "code": 201,
            "durationMs": 1.5,
        }
    ]


async def test_files_are_private_and_old_ones_are_deleted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", file_bytes_max=600, files=3)
    for number in range(20):
        log.record(replace(EVENT, request_id=f"r{number}"))
        await log.flush()
    files = sorted(os.listdir(tmp_path))
    assert files == ["audit.log", "audit.log.1", "audit.log.2"]
    for path in (tmp_path / name for name in files):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.stat().st_size <= 600
    kept = [line["requestID"] for name in reversed(files) for line in read_lines(tmp_path / name)]
    assert kept == [f"r{number}" for number in range(20 - len(kept), 20)]
    assert len(kept) > 4


async def test_lines_beyond_the_buffer_are_dropped_and_counted(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log", buffer_max=2)
    for number in range(5):
        log.record(replace(EVENT, request_id=f"r{number}"))
    await log.flush()
    first, *rest = read_lines(tmp_path / "audit.log")
    assert first == {"lost": 3}
    assert [line["requestID"] for line in rest] == ["r0", "r1"]


async def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    log = AuditLog(folder / "audit.log")
    log.record(EVENT)
    await log.flush()
    folder.mkdir()
    log.record(replace(EVENT, request_id="r2"))
    await log.flush()
    first, second = read_lines(folder / "audit.log")
    assert (first, second["requestID"]) == ({"lost": 1}, "r2")


async def test_control_characters_in_names_are_escaped(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.log")
    log.record(replace(EVENT, name='x\n{"user":"root"}\x1b[2J\u009b31m\u202e\u2028'))
    await log.flush()
    raw = (tmp_path / "audit.log").read_bytes()
    assert raw.count(b"\n") == 1
    assert all(32 <= byte < 127 for byte in raw.rstrip(b"\n"))


async def test_only_the_thread_of_the_event_loop_encodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that encodes holds the interpreter lock, and the event loop waits for it."""
    threads: list[int] = []

    def record_thread(value: object) -> bytes:
        threads.append(threading.get_ident())
        return codec.encode(value)

    monkeypatch.setattr(audit_log, "encode", record_thread)
    log = AuditLog(tmp_path / "audit.log", buffer_max=2)
    for _ in range(3):
        log.record(EVENT)
    await log.flush()
    two_events_and_lost_count = 3
    assert threads == [threading.get_ident()] * two_events_and_lost_count
