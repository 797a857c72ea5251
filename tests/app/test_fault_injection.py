"""The server injects the faults in the file of the command until they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import HUB, cell_plane
from datum_compute.app.fault_injection import FAULTS_FILE, FaultInjection
from datum_compute.client.transport.faults import Fault, encode_faults

REQUEST = Request("GET", "/api")


class HealthyTransport:
    async def send(self, request: Request) -> Response:
        return Response(200, b"{}")


async def test_a_fault_affects_only_its_plane_until_it_ends(tmp_path: Path) -> None:
    clock = [100.0]
    faults = FaultInjection(tmp_path, lambda: clock[0])
    hub, cell = (faults.wrap(p, HealthyTransport()) for p in (HUB, cell_plane("dfw")))
    crash = Fault(kind="crash", until_s=110.0)
    (tmp_path / FAULTS_FILE).write_bytes(encode_faults({"cell/dfw": crash}))
    faults.load()
    with pytest.raises(Unreachable):
        await cell.send(REQUEST)
    assert (await hub.send(REQUEST)).status == 200
    clock[0] = 111.0
    assert (await cell.send(REQUEST)).status == 200


async def test_an_invalid_file_keeps_the_faults_and_a_removed_file_ends_them(
    tmp_path: Path,
) -> None:
    faults = FaultInjection(tmp_path, lambda: 0.0)
    hub = faults.wrap(HUB, HealthyTransport())
    (tmp_path / FAULTS_FILE).write_bytes(encode_faults({"hub": Fault(kind="crash")}))
    faults.load()
    (tmp_path / FAULTS_FILE).write_bytes(b"{")
    faults.load()
    with pytest.raises(Unreachable):
        await hub.send(REQUEST)
    faults.remove_all()
    faults.load()
    assert (await hub.send(REQUEST)).status == 200
