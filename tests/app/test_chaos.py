"""The server takes over what the command wrote, and forgets it when it is over."""

from __future__ import annotations

from pathlib import Path

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import HUB, cell_plane
from datum_compute.app.fault_injection import FAULTS_FILE, FaultInjection
from datum_compute.client.transport.faults import Fault, encoded_troubles

ASK = Request("GET", "/api")


class Plane:
    async def send(self, request: Request) -> Response:
        return Response(200, b"{}")


async def test_only_the_plane_that_is_named_suffers_and_only_for_its_time(tmp_path: Path) -> None:
    clock = [100.0]
    faults = FaultInjection(tmp_path, lambda: clock[0])
    hub, cell = (faults.wrap(p, Plane()) for p in (HUB, cell_plane("dfw")))
    crash = Fault(kind="crash", until_s=110.0)
    (tmp_path / FAULTS_FILE).write_bytes(encoded_troubles({"cell/dfw": crash}))
    faults.load()
    with pytest.raises(Unreachable):
        await cell.send(ASK)
    assert (await hub.send(ASK)).status == 200
    clock[0] = 111.0
    assert (await cell.send(ASK)).status == 200


async def test_a_file_that_cannot_be_read_changes_nothing_and_none_heals(tmp_path: Path) -> None:
    faults = FaultInjection(tmp_path, lambda: 0.0)
    hub = faults.wrap(HUB, Plane())
    (tmp_path / FAULTS_FILE).write_bytes(encoded_troubles({"hub": Fault(kind="crash")}))
    faults.load()
    (tmp_path / FAULTS_FILE).write_bytes(b"{")
    faults.load()
    with pytest.raises(Unreachable):
        await hub.send(ASK)
    faults.remove_all()
    faults.load()
    assert (await hub.send(ASK)).status == 200
