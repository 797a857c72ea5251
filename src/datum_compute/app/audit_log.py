"""The audit log: JSON lines in one private file, and a few older files beside it.

A request encodes its event and puts the line into a buffer; a task writes the buffer in a separate
thread. That thread only joins and writes: if it also encoded, it would hold the interpreter lock
for its switch interval of 5 ms, and the event loop would wait for it.

A full buffer or a full disk loses lines, never requests. Lost lines are counted, and the next line
that can be written contains their number. A process that is killed loses the lines of its last
``FLUSH_S``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from datum_compute.api.meta.codec import encode, to_json
from datum_compute.api.meta.timestamps import micro_timestamp
from datum_compute.server.access.audit import AuditEvent

BUFFER_MAX = 10_000
FILE_BYTES_MAX = 10 * 1024 * 1024
FILES = 5
FLUSH_S = 0.2

_log = logging.getLogger("datum_compute.audit")


class AuditLog:
    def __init__(
        self,
        path: Path,
        *,
        buffer_max: int = BUFFER_MAX,
        file_bytes_max: int = FILE_BYTES_MAX,
        files: int = FILES,
    ) -> None:
        self._path = path
        self._buffer_max = buffer_max
        self._file_bytes_max = file_bytes_max
        self._files = files
        self._buffer: list[bytes] = []  # lines
        self._lost = 0
        self._failing = False
        self._has_lines = asyncio.Event()

    def record(self, event: AuditEvent) -> None:
        """Add the event to the buffer, or drop it if the buffer is full. Never waits."""
        if len(self._buffer) >= self._buffer_max:
            self._lost += 1
        else:
            self._buffer.append(_line(_entry(event)))
        self._has_lines.set()

    async def run(self) -> None:
        """Write until cancelled. ``flush`` writes the rest."""
        while True:
            await self._has_lines.wait()
            await asyncio.sleep(FLUSH_S)  # many events, one write
            await self.flush()

    async def flush(self) -> None:
        self._has_lines.clear()
        lines, self._buffer = self._buffer, []
        lost, self._lost = self._lost, 0
        if not lines and not lost:
            return
        if lost:
            lines.insert(0, _line({"lost": lost}))
        try:
            await asyncio.to_thread(self._write, b"".join(lines))
        except OSError as error:
            self._lost += lost + len(lines) - bool(lost)
            if not self._failing:
                _log.error("cannot write the audit log (%s); lines are lost", error)
            self._failing = True
            return
        if lost:
            _log.warning("%d lines of the audit log were lost", lost)
        self._failing = False

    def _write(self, content: bytes) -> None:
        size = self._path.stat().st_size if self._path.exists() else 0
        if size and size + len(content) > self._file_bytes_max:
            self._rotate()
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(content)

    def _rotate(self) -> None:
        for age in reversed(range(self._files - 1)):
            older = self._path.with_name(f"{self._path.name}.{age + 1}")
            newer = self._path.with_name(f"{self._path.name}.{age}") if age else self._path
            if newer.exists():
                newer.replace(older)


def audit_line(event: AuditEvent) -> str:
    """Return the event as one line of JSON."""
    return _line(_entry(event)).decode().rstrip()


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An event as written; empty fields are omitted."""

    time: str
    request_id: str = msgspec.field(name="requestID")
    user: str = ""
    impersonated_user: str = ""
    plane: str = ""
    verb: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    code: int
    reason: str = ""
    duration_ms: float


def _entry(event: AuditEvent) -> _Entry:
    return _Entry(
        time=micro_timestamp(event.time_s),
        request_id=event.request_id,
        user=event.user,
        impersonated_user=event.impersonated_user,
        plane=event.plane,
        verb=event.verb,
        group=event.group,
        resource=event.resource,
        subresource=event.subresource,
        namespace=event.namespace,
        name=event.name,
        path=event.path,
        code=event.code,
        reason=event.reason,
        duration_ms=round(event.duration_s * 1000, 3),
    )


def _line(entry: Any) -> bytes:
    # ASCII only: names come from users, and a terminal could interpret other characters in them.
    line = encode(entry)
    return (line if line.isascii() else json.dumps(to_json(entry)).encode()) + b"\n"
