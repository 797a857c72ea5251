"""A cell joins a hub, renews its certificate, and rotates the token of the hub."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from datum_compute.api.errors import Forbidden, Unauthorized
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLUSTER, SECRET
from datum_compute.api.membership import HUB_USER
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB, cell_plane
from datum_compute.app.cell_membership import (
    HubTokenRotation,
    Joining,
    MembershipFiles,
    join,
    renew,
    seconds_until_renewal,
)
from datum_compute.app.certificates import (
    certify,
    ensure_certificate,
    issue_client_certificate,
    validity,
)
from datum_compute.app.state_credentials import (
    PlaneTokens,
    ensure_credentials,
    merge_cells,
    write_kubeconfig,
)
from datum_compute.app.state_directory import StateError, ensure_private_directory
from datum_compute.client.auth.connection import Connection
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.planes.cell_members import connection_to
from datum_compute.server.access.authentication import StaticTokens
from datum_compute.server.access.client_certificates import IssuedCertificate, SigningRequest
from testkit.api_server.running_server import START_S, TOKEN, InProcessServer
from tests.server.cell_world import CLUSTERS, hub_with_two_cells
from tests.server.cell_world import HUB as HUB_PATH
from tests.server.virtual.test_cell_join import TOKEN_TEXT, TOKENS, join_token

NOW = datetime.fromtimestamp(START_S, UTC)
URL = "https://127.0.0.1:7443"


class CertificateTransport:
    """A transport to the server with the client certificate of a TLS connection."""

    def __init__(self, server: InProcessServer, certificate_pem: str = "") -> None:
        self._server = server
        self._certificate = certificate_pem

    async def send(self, request: Request) -> Response:
        return await self._server.api.dispatch(replace(request, certificate_pem=self._certificate))


def build_opener(
    server: InProcessServer,
) -> Callable[[Connection], AbstractAsyncContextManager[Transport]]:
    @asynccontextmanager
    async def opened(_connection: Connection) -> AsyncIterator[Transport]:
        yield CertificateTransport(server)

    return opened


@asynccontextmanager
async def hub(folder: Path) -> AsyncIterator[InProcessServer]:
    ensure_certificate(ensure_private_directory(folder), NOW)

    def signed(requested: SigningRequest, user: str, groups: tuple[str, ...]) -> IssuedCertificate:
        now = datetime.fromtimestamp(server.clock.now_s, UTC)
        return certify(folder, requested, user, groups, now, timedelta(hours=3))

    async with hub_with_two_cells(certify=signed) as server:
        await server.json("POST", TOKENS, join_token())
        yield server


def build_joining(folder: Path, **more: str) -> Joining:
    values = {"cell": "lhr", "city": "lhr", "token": TOKEN_TEXT, **more}
    return Joining(folder / "cell", values["cell"], values["city"], URL, values["token"])


async def test_a_repeated_join_uses_the_same_key_and_files_are_private(
    tmp_path: Path,
) -> None:
    async with hub(tmp_path / "hub") as server:
        membership = await join(build_joining(tmp_path), build_opener(server), NOW)
        files = MembershipFiles(tmp_path / "cell")
        assert files.read() == membership
        assert (membership.city, membership.hub) == ("LHR", URL)
        key = files.key.read_bytes()
        again = await join(build_joining(tmp_path), build_opener(server), NOW)
        assert (again, files.key.read_bytes()) == (membership, key)
        for path in (tmp_path / "cell").iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


async def test_a_rejected_join_leaves_no_membership(tmp_path: Path) -> None:
    async with hub(tmp_path / "hub") as server:
        with pytest.raises(Unauthorized):
            await join(build_joining(tmp_path, token="join-one.wrong"), build_opener(server), NOW)
        server.clock.now_s += 7200
        with pytest.raises(Forbidden, match="has expired"):
            await join(build_joining(tmp_path), build_opener(server), NOW)
    assert MembershipFiles(tmp_path / "cell").read() is None


async def test_a_state_directory_belongs_to_one_cell(tmp_path: Path) -> None:
    async with hub(tmp_path / "hub") as server:
        await join(build_joining(tmp_path), build_opener(server), NOW)
        with pytest.raises(StateError, match="belongs to cell lhr"):
            await join(build_joining(tmp_path, cell="ams", city="AMS"), build_opener(server), NOW)


async def test_the_certificate_is_renewed_and_invalid_after_the_cluster_is_deleted(
    tmp_path: Path,
) -> None:
    async with hub(tmp_path / "hub") as server:
        membership = await join(build_joining(tmp_path), build_opener(server), NOW)
        files = MembershipFiles(tmp_path / "cell")
        shown = files.certificate.read_text()
        client = Client(
            CertificateTransport(server, shown), prefix=HUB_PATH, token="", agent="cell"
        )
        assert (await client.get(CLUSTER, Ref("", "lhr"))).metadata.name == "lhr"
        with pytest.raises(Forbidden):
            await client.get(CLUSTER, Ref("", "dfw"))
        assert seconds_until_renewal(shown.encode(), server.clock.now_s) > 0
        server.clock.now_s += 2.5 * 3600
        assert seconds_until_renewal(shown.encode(), server.clock.now_s) <= 0
        await renew(client, files, membership)
        renewed = files.certificate.read_bytes()
        assert validity(renewed)[1] > validity(shown.encode())[1]
        assert seconds_until_renewal(renewed, server.clock.now_s) > 0
        await server.merge(f"{CLUSTERS}/lhr", {"metadata": {"finalizers": []}})
        await server.json("DELETE", f"{CLUSTERS}/lhr")
        with pytest.raises(Forbidden, match="has left"):
            await renew(client, files, membership)


@pytest.mark.parametrize("lifetime_s", [30.0, 600.0, 86400.0])
def test_a_certificate_is_renewed_when_a_third_of_its_lifetime_is_left(
    tmp_path: Path, lifetime_s: float
) -> None:
    """Certificates of a few minutes must not be renewed in a loop without a delay."""
    ensure_certificate(ensure_private_directory(tmp_path / "hub"), NOW)
    lifetime = timedelta(seconds=lifetime_s)
    made = issue_client_certificate(tmp_path / "hub", "system:cell:dfw", NOW, lifetime=lifetime)
    assert seconds_until_renewal(made.certificate, START_S) == pytest.approx(
        lifetime_s * 2 / 3, abs=2
    )


async def test_the_hub_connects_to_the_cell_with_the_credentials_of_the_join(
    tmp_path: Path,
) -> None:
    async with hub(tmp_path / "hub") as server:
        membership = await join(build_joining(tmp_path), build_opener(server), NOW)
        client = Client(CertificateTransport(server), prefix=HUB_PATH, token=TOKEN, agent="test")
        cluster = await client.get(CLUSTER, Ref("", "lhr"))
        secret = await client.get(SECRET, Ref("karmada-cluster", "lhr"))
        found = connection_to(cluster, secret)
    assert found is not None
    assert f"{found.server}{found.path_prefix}" == membership.endpoint
    tokens = (tmp_path / "cell" / "tokens.json").read_text()
    assert found.token
    assert found.token in tokens
    assert found.ca_pem == (tmp_path / "cell" / "ca.crt").read_bytes()
    assert connection_to(cluster, None) is None
    assert found.token not in repr(found)
    assert hashlib.sha256(TOKEN_TEXT.encode()).hexdigest() not in tokens


def test_contexts_of_cells_are_merged_into_the_kubeconfig_of_the_platform(tmp_path: Path) -> None:
    own = tmp_path / "cells" / "dfw"
    own.mkdir(parents=True)
    for name in ("kubeconfig", "manager.kubeconfig"):
        for folder, plane, port in ((tmp_path, HUB, 1), (own, "cell/dfw", 2)):
            write_kubeconfig(
                folder / name,
                server=f"https://127.0.0.1:{port}",
                authority=b"PEM",
                tokens={plane: "t"},  # type: ignore[dict-item]
                current=HUB,
            )
    for _ in range(2):
        merge_cells(tmp_path)
        config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
        assert [c["name"] for c in config["contexts"]] == ["hub", "cell/dfw"]
        servers = {c["name"]: c["cluster"]["server"] for c in config["clusters"]}
        assert servers["cell/dfw"] == "https://127.0.0.1:2/planes/cells/dfw"


PLANE = cell_plane("dfw")


def start_cell(folder: Path) -> tuple[PlaneTokens, StaticTokens, HubTokenRotation]:
    """Return what a process of the cell reads at its start."""
    path = folder / "tokens.json"
    credentials = ensure_credentials(path, (PLANE,), of_cell=True)
    authenticator = credentials.authenticator()
    return credentials, authenticator, HubTokenRotation(path, PLANE, authenticator)


def is_hub_token(authenticator: StaticTokens, token: str) -> bool:
    user = authenticator.user_of(token)
    return user is not None and user.name == HUB_USER and user.planes == {PLANE}


def test_both_tokens_are_valid_until_the_old_one_is_revoked(tmp_path: Path) -> None:
    credentials, authenticator, rotation = start_cell(tmp_path)
    new = rotation.accept_next()
    assert new not in ("", credentials.hub)
    assert is_hub_token(authenticator, new)
    assert is_hub_token(authenticator, credentials.hub)
    assert rotation.promote_next() == credentials.hub
    assert is_hub_token(authenticator, credentials.hub), "open requests are not interrupted"
    rotation.revoke(credentials.hub)
    assert not is_hub_token(authenticator, credentials.hub)
    again, authenticator, _ = start_cell(tmp_path)
    assert again.hub == new
    assert is_hub_token(authenticator, new)
    assert not is_hub_token(authenticator, credentials.hub)


def test_both_tokens_are_valid_after_a_crash_during_the_rotation(tmp_path: Path) -> None:
    before, _, rotation = start_cell(tmp_path)
    new = rotation.accept_next()  # unknown whether the hub has received it
    _, authenticator, rotation = start_cell(tmp_path)
    assert is_hub_token(authenticator, new)
    assert is_hub_token(authenticator, before.hub)
    assert rotation.accept_next() == new, "the same token is sent again"


def test_representations_contain_no_token(tmp_path: Path) -> None:
    credentials, _, rotation = start_cell(tmp_path)
    new = rotation.accept_next()
    assert new not in repr(credentials) + repr(rotation)
    assert (tmp_path / "tokens.json").stat().st_mode & 0o077 == 0
