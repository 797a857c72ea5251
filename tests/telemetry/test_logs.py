"""Log lines: what they carry, and what can never get into them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import project_plane
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.worker import instrument
from datum_compute.telemetry.context import RECONCILE, REQUEST_ID
from datum_compute.telemetry.logs import configure_logging
from testkit.api_server.running_server import running_server

log = logging.getLogger("datum_compute.test")
EVIL = "name\n2026-01-01T00:00:00.000Z INFO root: all is well\x1b[2J\x9b1m\r\u202e\u2028\x7f\x00"
VISIBLE = set(map(chr, range(0x20, 0x7F)))


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Where the lines go; logging is as it was afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("datum_compute")
    before = root.handlers[:], root.level, ours.level
    yield io.StringIO()
    root.handlers[:], root.level, ours.level = before
    root.setLevel(before[1])
    ours.setLevel(before[2])


def test_a_json_line_says_what_it_is_about(lines: io.StringIO) -> None:
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
def test_text_of_strangers_cannot_forge_a_line_or_move_a_cursor(
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
    begins = [line for line in text.splitlines() if not line.startswith("    | ")]
    assert len(begins) == 1
    if log_format == "json":
        entry = json.loads(text)
        assert entry["object"] == EVIL, "nothing is lost, only written out"
        assert EVIL in entry["exception"]


def test_half_a_surrogate_pair_is_written_all_the_same(lines: io.StringIO) -> None:
    configure_logging("info", "json", lines)
    log.info("odd \udc00 text")
    assert json.loads(lines.getvalue())["message"] == "odd \udc00 text"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_bearer_token_is_struck_out(lines: io.StringIO, log_format: str) -> None:
    configure_logging("debug", log_format, lines)
    log.debug("headers: {'Authorization': 'Bearer s3cr3t-t0ken', 'x': 1}")
    leaking = "authorization: bearer  s3cr3t-t0ken"
    try:
        raise ValueError(leaking)
    except ValueError:
        log.exception("oh")
    assert "s3cr3t" not in lines.getvalue()
    assert lines.getvalue().count("[not shown]") == 2


def test_libraries_stay_silent_at_debug(lines: io.StringIO) -> None:
    configure_logging("debug", "json", lines)
    logging.getLogger("aiohttp.client").debug("a header perhaps")
    log.debug("ours")
    logging.getLogger("asyncio").info("heard")
    assert [json.loads(line)["message"] for line in lines.getvalue().splitlines()] == [
        "ours",
        "heard",
    ]


async def test_lines_within_a_reconcile_carry_plane_object_and_a_number(lines: io.StringIO) -> None:
    configure_logging("info", "json", lines)

    async def reconcile(_context: None, _key: Key) -> Outcome:
        log.info("working")
        return Done()

    plain = Controller(name="tests", role="project", reconcile=reconcile, edges=(for_(WORKLOAD),))
    controller = instrument(plain)
    for name in ("a", "b"):
        await controller.reconcile(None, Key(project_plane("p"), Ref("default", name)))
    log.info("what became of it")
    entries = [json.loads(line) for line in lines.getvalue().splitlines()]
    told = [(e["controller"], e["plane"], e["kind"], e["object"], e["reconcile"]) for e in entries]
    assert told == [
        ("tests", "project/p", "Workload", "default/a", "tests-1"),
        ("tests", "project/p", "Workload", "default/b", "tests-2"),
        ("tests", "project/p", "Workload", "default/b", "tests-2"),
    ]


async def test_lines_of_a_failing_request_carry_the_id_that_its_answer_has(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging("info", "json", lines)
    async with running_server(new_request_id=lambda: "request-77") as server:

        def broken(_plane: str) -> int:
            raise RuntimeError("a defect")

        monkeypatch.setattr(server.store, "version", broken)
        response = await server.ask("GET", "/api/v1/namespaces")
        monkeypatch.undo()
    assert (response.status, response.headers["audit-id"]) == (500, "request-77")
    entry = json.loads(lines.getvalue().splitlines()[0])
    assert entry["request"] == "request-77"
    assert "a defect" in entry["exception"]
    assert REQUEST_ID.get() == ""
