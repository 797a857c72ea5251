"""Log lines: formats, escaping and redaction."""

from __future__ import annotations

import io
import json
import logging

import pytest

from datum_compute.telemetry.context import RECONCILE, REQUEST_ID
from datum_compute.telemetry.logs import configure_logging

log = logging.getLogger("datum_compute.test")
EVIL = "name\n2026-01-01T00:00:00.000Z INFO root: all is well\x1b[2J\x9b1m\r\u202e\u2028\x7f\x00"
VISIBLE = set(map(chr, range(0x20, 0x7F)))


def test_a_json_line_contains_its_context(lines: io.StringIO) -> None:
    configure_logging("info", "json", lines)
    fields = {"plane": "hub", "object": "default/web"}
    outer, inner = RECONCILE.set(lambda: fields), REQUEST_ID.set("r-1")
    log.info("%s happened", "something")
    RECONCILE.reset(outer)
    REQUEST_ID.reset(inner)
    entry = json.loads(lines.getvalue())
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "info",
        "logger": "datum_compute.test",
        "message": "something happened",
        "plane": "hub",
        "object": "default/web",
        "request": "r-1",
    }


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_text_of_users_cannot_forge_a_line_or_move_the_cursor(
    lines: io.StringIO, log_format: str
) -> None:
    configure_logging("info", log_format, lines)
    outer = RECONCILE.set(lambda: {"object": EVIL})
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("failed: %s", EVIL)
    RECONCILE.reset(outer)
    text = lines.getvalue()
    assert set(text) <= VISIBLE | {"\n"}
    records = [line for line in text.splitlines() if not line.startswith("    | ")]
    assert len(records) == 1
    if log_format == "json":
        entry = json.loads(text)
        assert entry["object"] == EVIL, "characters are escaped, not dropped"
        assert EVIL in entry["exception"]


def test_an_unpaired_surrogate_is_written(lines: io.StringIO) -> None:
    configure_logging("info", "json", lines)
    log.info("odd \udc00 text")
    assert json.loads(lines.getvalue())["message"] == "odd \udc00 text"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_bearer_token_is_redacted(lines: io.StringIO, log_format: str) -> None:
    configure_logging("debug", log_format, lines)
    log.debug("headers: {'Authorization': 'Bearer s3cr3t-t0ken', 'x': 1}")
    leaking = "authorization: bearer  s3cr3t-t0ken"
    try:
        raise ValueError(leaking)
    except ValueError:
        log.exception("oh")
    assert "s3cr3t" not in lines.getvalue()
    assert lines.getvalue().count("[not shown]") == 2


def test_debug_lines_of_libraries_are_dropped(lines: io.StringIO) -> None:
    configure_logging("debug", "json", lines)
    logging.getLogger("aiohttp.client").debug("a header perhaps")
    log.debug("ours")
    logging.getLogger("asyncio").info("a library")
    assert [json.loads(line)["message"] for line in lines.getvalue().splitlines()] == [
        "ours",
        "a library",
    ]
