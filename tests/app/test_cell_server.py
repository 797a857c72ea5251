"""A joined cell whose port is in use reports another port to the hub, or does not start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from msgspec.structs import replace

from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLUSTER
from datum_compute.api.meta.objects import Ref
from datum_compute.app.cell_membership import Membership, MembershipFiles, join
from datum_compute.app.cell_server import bind_cell_socket, report_address
from datum_compute.app.state_directory import StateError, read_last_port
from datum_compute.client.client import Client
from datum_compute.server.http.listen import bind_listener
from testkit.api_server.running_server import TOKEN
from tests.app.test_cell_membership import (
    NOW,
    CertificateTransport,
    build_joining,
    build_opener,
    hub,
)
from tests.server.cell_world import HUB as HUB_PATH

HOST = "127.0.0.1"


def occupy_port(port: int) -> socket.socket:
    bound = bind_listener(port)
    bound.listen()
    return bound


def build_membership(endpoint: str) -> Membership:
    return Membership(cell="lhr", city="LHR", hub="https://hub.example", endpoint=endpoint)


async def test_a_cell_whose_port_is_in_use_reports_its_new_port_to_the_hub(tmp_path: Path) -> None:
    async with hub(tmp_path / "hub") as server:
        joined = await join(build_joining(tmp_path), build_opener(server), NOW)
        state = tmp_path / "cell"
        files, port = MembershipFiles(state), read_last_port(state)
        with occupy_port(port):
            bound, moved = bind_cell_socket(state, joined, 0, HOST)
        with bound:
            assert bound.getsockname()[1] != port
            assert moved.endpoint == joined.endpoint.replace(str(port), str(bound.getsockname()[1]))
        shown = files.certificate.read_text()
        cell = Client(CertificateTransport(server, shown), prefix=HUB_PATH, token="", agent="cell")
        await report_address(cell, files, moved)
        admin = Client(CertificateTransport(server), prefix=HUB_PATH, token=TOKEN, agent="test")
        assert (await admin.get(CLUSTER, Ref("", "lhr"))).spec.api_endpoint == moved.endpoint
        assert files.read() == moved


def test_a_cell_whose_port_is_free_keeps_its_address(tmp_path: Path) -> None:
    with bind_listener(0) as free:
        port = free.getsockname()[1]
    for host in ("127.0.0.1", "cell.example", "[::1]"):
        known = build_membership(f"https://{host}:{port}/planes/cells/lhr")
        bound, found = bind_cell_socket(tmp_path, known, port, HOST)
        bound.close()
        assert found == known


@pytest.mark.parametrize("wanted", [True, False])
def test_a_cell_with_a_host_name_does_not_start_on_another_port(
    tmp_path: Path, wanted: bool
) -> None:
    with occupy_port(0) as other:
        port = other.getsockname()[1]
        known = build_membership(f"https://cell.example:{port}/planes/cells/lhr")
        with pytest.raises(StateError, match=f"port {port} .*already in use.*cell.example.*join"):
            bind_cell_socket(tmp_path, known, port if wanted else 0, HOST)


def test_a_forwarded_port_is_not_replaced_by_the_local_port(tmp_path: Path) -> None:
    known = build_membership("https://cell.example:443/planes/cells/lhr")
    with bind_listener(0) as free:
        port = free.getsockname()[1]
    bound, found = bind_cell_socket(tmp_path, known, port, HOST)
    with bound:
        assert (bound.getsockname()[1], found) == (port, known)


async def test_an_unchanged_address_is_not_reported(tmp_path: Path) -> None:
    async with hub(tmp_path / "hub") as server:
        joined = await join(build_joining(tmp_path), build_opener(server), NOW)
        sent: list[Request] = []

        class RecordingTransport:
            async def send(self, request: Request) -> Response:
                sent.append(request)
                return await CertificateTransport(server).send(request)

        cell = Client(RecordingTransport(), prefix=HUB_PATH, token="", agent="cell")
        await report_address(cell, MembershipFiles(tmp_path / "cell"), replace(joined))
        assert sent == []
