"""Log lines: one JSON object each, or a line for people.

Rules it keeps: one record is one line (a traceback in console form is indented below it, so that
no text of a stranger can pass for a line of its own); nothing that moves a cursor or hides text
gets through; a bearer token that slips into a message is struck out; what a line is about
(plane, object, controller, reconcile, request) comes along by itself.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from datum_compute.telemetry.context import scope_fields

# --- Text of strangers on its way to a terminal, a log or an event: visible, and nothing else


def printable(text: str) -> str:
    """The text with everything that is not plainly visible written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut_bytes(text: str, bytes_max: int) -> str:
    """At most so many bytes of UTF-8, never half a character; what was cut is marked."""
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    mark = "..."
    return encoded[: bytes_max - len(mark)].decode("utf-8", errors="ignore") + mark


# --- logs


FORMATS = ("console", "json")
LEVELS = ("debug", "info", "warning", "error")

_OURS = "datum_compute"
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;]+")
_STRUCK_OUT = r"\1[not shown]"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": without_tokens(record.getMessage()),
            **scope_fields(),
        }
        if record.exc_info:
            entry["exception"] = without_tokens(self.formatException(record.exc_info))
        return json_line(entry)


class ConsoleFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {k}={printable(v)}" for k, v in scope_fields().items())
        message = printable(without_tokens(record.getMessage()))
        line = f"{_time(record)} {record.levelname} {record.name}: {message}{fields}"
        if not record.exc_info:
            return line
        trace = without_tokens(self.formatException(record.exc_info))
        return "\n".join((line, *(f"    | {printable(t)}" for t in trace.splitlines())))


def json_line(entry: Mapping[str, Any]) -> str:
    """Plain ASCII: JSON alone lets the upper control characters and directions of writing pass."""
    try:
        line = orjson.dumps(entry)
    except TypeError:  # half a surrogate pair
        line = b"\xff"
    text = line.decode() if line.isascii() else json.dumps(entry, ensure_ascii=True)
    return text.replace("\x7f", "\\u007f")


def without_tokens(text: str) -> str:
    return _BEARER.sub(_STRUCK_OUT, text) if "earer" in text.lower() else text


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """All lines of the process to ``stream`` (standard error). Libraries are heard from ``info``
    on only: what they say at ``debug`` is not ours to vouch for."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    wanted = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(wanted, logging.INFO))
    logging.getLogger(_OURS).setLevel(wanted)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
