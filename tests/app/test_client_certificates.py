"""Authentication by client certificates on the real TLS port."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest

from datum_compute.api.planes import PlaneName
from datum_compute.app.certificates import (
    ClientCertificate,
    ensure_certificate,
    issue_client_certificate,
)
from datum_compute.server.access.client_certificates import CertificateReader
from datum_compute.server.http.listen import api_tls_context, bind_listener
from datum_compute.server.http.server import HttpServer
from testkit.api_server.granting import (
    ANN,
    RBAC,
    cluster_binding,
    cluster_role,
    rule,
    server_with_ann,
)
from testkit.api_server.running_server import PROJECT, TOKEN, WORKLOADS, InProcessServer

NOW = datetime.now(UTC)


@dataclass
class Port:
    server: InProcessServer
    folder: Path
    address: str

    def issue_certificate(self, user: str, *groups: str, **more: object) -> ClientCertificate:
        now = NOW - timedelta(days=60) if more.pop("expired", False) else NOW
        return issue_client_certificate(self.folder, user, now, groups=groups, **more)  # type: ignore[arg-type]

    async def get(
        self, path: str, shown: ClientCertificate | None = None, **headers: str
    ) -> tuple[int, str]:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        if shown is not None:
            file = self.folder / "client.pem"
            file.write_bytes(shown.key + shown.certificate)
            context.load_cert_chain(str(file))
        async with (
            aiohttp.ClientSession(self.address, headers=headers) as session,
            session.get(path, ssl=context) as response,
        ):
            return response.status, await response.text()


@pytest.fixture
async def port(tmp_path: Path) -> AsyncIterator[Port]:
    files = ensure_certificate(tmp_path, NOW)
    with bind_listener(0) as bound:
        async with server_with_ann() as server:
            server.clock.now_s = NOW.timestamp()
            front = HttpServer(server.api.dispatch, server.clock)
            await front.start(bound, api_tls_context(files))
            role = cluster_role("lists", rule("list", "workloads"))
            await server.json("POST", f"{RBAC}/clusterroles", role)
            subject = {"kind": "Group", "name": "devs"}
            bound_role = cluster_binding("lists", "lists", subject)
            await server.json("POST", f"{RBAC}/clusterrolebindings", bound_role)
            yield Port(server, tmp_path, f"https://127.0.0.1:{bound.getsockname()[1]}")
            await front.stop()


async def test_common_name_and_organizations_are_user_and_groups(port: Port) -> None:
    assert (await port.get(WORKLOADS, port.issue_certificate("dora", "devs", "others")))[0] == 200
    status, text = await port.get(WORKLOADS, port.issue_certificate("dora"))
    assert status == 403
    assert 'User \\"dora\\" cannot list' in text


async def test_a_client_certificate_is_optional(port: Port) -> None:
    assert (await port.get("/healthz"))[0] == 200
    assert (await port.get(WORKLOADS))[0] == 401
    assert (await port.get(WORKLOADS, Authorization=f"Bearer {TOKEN}"))[0] == 200


async def test_a_token_overrides_a_client_certificate(port: Port) -> None:
    shown = port.issue_certificate("dora", "devs")
    status, text = await port.get(WORKLOADS, shown, Authorization=f"Bearer {ANN}")
    assert (status, 'User \\"ann\\"' in text) == (403, True)
    assert (await port.get(WORKLOADS, shown, Authorization="Bearer wrong"))[0] == 401


async def test_a_certificate_is_valid_for_its_plane_only(port: Port) -> None:
    shown = port.issue_certificate("boss", "system:masters", planes=[PlaneName("project/demo")])
    assert (await port.get(PROJECT + WORKLOADS, shown))[0] == 200
    assert (await port.get(WORKLOADS, shown))[0] == 403


async def is_rejected(port: Port, shown: ClientCertificate) -> bool:
    with contextlib.suppress(aiohttp.ClientError, ssl.SSLError, ConnectionError):
        return (await port.get(WORKLOADS, shown))[0] == 401
    return True  # the TLS handshake failed


async def test_expired_untrusted_and_server_certificates_are_rejected(
    port: Port, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert await is_rejected(port, port.issue_certificate("dora", "devs", expired=True))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    ensure_certificate(elsewhere, NOW)
    assert await is_rejected(
        port, issue_client_certificate(elsewhere, "dora", NOW, groups=["devs"])
    )
    files = ensure_certificate(port.folder, NOW)
    own = ClientCertificate(files.certificate.read_bytes(), files.key.read_bytes())
    assert await is_rejected(port, own)
    assert not await is_rejected(port, port.issue_certificate("dora", "devs"))


async def test_requests_on_an_open_connection_fail_after_the_certificate_expires(
    port: Port,
) -> None:
    shown = port.issue_certificate("dora", "devs", lifetime=timedelta(hours=1))
    assert (await port.get(WORKLOADS, shown))[0] == 200
    port.server.clock.now_s += 3600
    assert (await port.get(WORKLOADS, shown))[0] == 401


async def test_headers_beyond_the_limit_end_the_connection(port: Port) -> None:
    context = ssl.create_default_context(cafile=str(port.folder / "ca.crt"))
    host, _, number = port.address.removeprefix("https://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(number), ssl=context)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: ")
    with contextlib.suppress(ConnectionError):
        for _ in range(64):
            writer.write(b"x" * 16384)
            await writer.drain()
    with contextlib.suppress(ConnectionError):
        assert (await reader.read(15)).startswith(b"HTTP/1.1 431")
    writer.close()


async def test_a_large_body_does_not_count_as_headers(port: Port) -> None:
    context = ssl.create_default_context(cafile=str(port.folder / "ca.crt"))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(port.address, headers=headers) as session:
        for _ in range(2):
            body = b" " * 600_000 + b"{"
            async with session.post(
                WORKLOADS, data=body, ssl=context, headers={"Content-Type": "application/json"}
            ) as response:
                assert "not valid JSON" in (await response.json())["message"]


def test_a_certificate_must_be_for_clients_and_name_one_printable_user(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NOW)
    known, now_s = CertificateReader(), NOW.timestamp()
    good = issue_client_certificate(tmp_path, "dora", NOW, groups=["devs"])
    found = known.user_of(good.certificate.decode(), now_s)
    assert found is not None
    user, _ = found
    assert (user.name, user.groups) == ("dora", ("devs", "system:authenticated"))
    bad = issue_client_certificate(tmp_path, "do\nra\x1b[2J", NOW)
    for pem in (bad.certificate, files.certificate.read_bytes(), files.authority.read_bytes()):
        assert known.user_of(pem.decode(), now_s) is None
    for text in ("", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        assert known.user_of(text, now_s) is None
    assert known.user_of(good.certificate.decode(), now_s - 3600) is None
