"""Log lines: one JSON object each, or one line of text for a console.

Rules:
- A record is one line. A traceback on a console is indented below it, so that text of users cannot
  look like a line of its own.
- Control characters are escaped: they could move the cursor or hide text.
- A bearer token in a message is redacted.
- Each line contains its context: plane, object, controller, reconcile, request.
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

# --- Text of users in terminals, logs and events


def printable(text: str) -> str:
    """Return the text with all characters escaped that are not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut_bytes(text: str, bytes_max: int) -> str:
    """Truncate text to ``bytes_max`` bytes of UTF-8, at a character, with an ellipsis."""
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    mark = "..."
    return encoded[: bytes_max - len(mark)].decode("utf-8", errors="ignore") + mark


# --- Formats


FORMATS = ("console", "json")
LEVELS = ("debug", "info", "warning", "error")

_ROOT_LOGGER = "datum_compute"
_BEARER = re.compile(r"(?i)\b(bearer\s+)[^\s\"',;]+")
_REDACTED = r"\1[not shown]"


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
    """Return one line of ASCII. JSON alone does not escape C1 control and bidi characters."""
    try:
        line = orjson.dumps(entry)
    except TypeError:  # an unpaired surrogate
        line = b"\xff"
    text = line.decode() if line.isascii() else json.dumps(entry, ensure_ascii=True)
    return text.replace("\x7f", "\\u007f")


def without_tokens(text: str) -> str:
    return _BEARER.sub(_REDACTED, text) if "earer" in text.lower() else text


def configure_logging(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Write all log lines of the process to ``stream``, by default stderr.

    Libraries log at ``info`` and above only: their debug lines could contain secrets.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else ConsoleFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    wanted = logging.getLevelNamesMapping()[level.upper()]
    root.setLevel(max(wanted, logging.INFO))
    logging.getLogger(_ROOT_LOGGER).setLevel(wanted)


def _time(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
