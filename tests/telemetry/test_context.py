"""The context of log lines: the current reconcile and request."""

from __future__ import annotations

import io
import json
import logging

import pytest

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import project_plane
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.worker import instrument
from datum_compute.telemetry.context import REQUEST_ID
from datum_compute.telemetry.logs import configure_logging
from testkit.api_server.running_server import running_server

log = logging.getLogger("datum_compute.test")


async def test_log_lines_of_a_reconcile_contain_controller_plane_object_and_number(
    lines: io.StringIO,
) -> None:
    configure_logging("info", "json", lines)

    async def reconcile(_context: None, _key: Key) -> Outcome:
        log.info("working")
        return Done()

    plain = Controller(name="tests", role="project", reconcile=reconcile, edges=(for_(WORKLOAD),))
    controller = instrument(plain)
    for name in ("a", "b"):
        await controller.reconcile(None, Key(project_plane("p"), Ref("default", name)))
    log.info("outcome")
    entries = [json.loads(line) for line in lines.getvalue().splitlines()]
    found = [(e["controller"], e["plane"], e["kind"], e["object"], e["reconcile"]) for e in entries]
    assert found == [
        ("tests", "project/p", "Workload", "default/a", "tests-1"),
        ("tests", "project/p", "Workload", "default/b", "tests-2"),
        ("tests", "project/p", "Workload", "default/b", "tests-2"),
    ]


async def test_log_lines_of_a_failing_request_contain_the_id_of_its_response(
    lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logging("info", "json", lines)
    async with running_server(new_request_id=lambda: "request-77") as server:

        def broken(_plane: str) -> int:
            raise RuntimeError("a bug")

        monkeypatch.setattr(server.store, "version", broken)
        response = await server.ask("GET", "/api/v1/namespaces")
        monkeypatch.undo()
    assert (response.status, response.headers["audit-id"]) == (500, "request-77")
    entry = json.loads(lines.getvalue().splitlines()[0])
    assert entry["request"] == "request-77"
    assert "a bug" in entry["exception"]
    assert REQUEST_ID.get() == ""
