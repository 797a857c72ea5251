"""Signing in against real servers, plugins and proxies on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiohttp import web

from datum_compute.api.errors import Unauthorized, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.client.auth.connection import Connection, ExecSignIn, FileSignIn
from datum_compute.client.auth.credentials import (
    REREAD_S,
    AuthenticatedTransport,
    AuthEnvironment,
    Credential,
    FileCredentials,
    in_cluster_connection,
)
from datum_compute.client.auth.kubeconfig_files import KubeconfigError
from datum_compute.client.connect import open_transport
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.client.transport.tls import Certificate
from tests.client.authority import Authority, new_authority
from tests.client.recorded import in_virtual_time
from tests.client.serving import server_tls, serving
from tests.stream_servers import serve_tcp

GET = Request("GET", "/a")
V1 = "client.authentication.k8s.io/v1"


@dataclass
class World:
    """A clock that a test moves, and whether somebody is at the terminal."""

    now_s: float = 1_700_000_000.0
    is_terminal: bool = False
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})

    @property
    def outside(self) -> AuthEnvironment:
        return AuthEnvironment(self.environ, self.is_terminal, lambda: self.now_s, Random(1))


@dataclass
class Door:
    """A server that lets certain tokens in and keeps a list of who knocked."""

    good: set[str]
    knocked: list[str] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.knocked.append(token)
        return web.Response(status=200 if token in self.good else 401)


async def ask(connection: Connection, world: World, times: int = 1) -> list[int]:
    async with open_transport(connection, world.outside) as transport:
        return [(await transport.send(GET)).status for _ in range(times)]


# --- plugins


@dataclass
class Plugin:
    """A program that answers with what the test puts into ``answer`` and notes how it was run."""

    folder: Path

    @property
    def sign_in(self) -> ExecSignIn:
        return self.as_sign_in()

    def as_sign_in(self, **changes: Any) -> ExecSignIn:
        script = (
            "import json, os, sys\n"
            f"folder = {str(self.folder)!r}\n"
            "run = {'info': os.environ['KUBERNETES_EXEC_INFO'], 'stdin': sys.stdin.read(),\n"
            "       'extra': os.environ.get('EXTRA'), 'words': sys.argv[1:]}\n"
            "open(folder + '/runs', 'a').write(json.dumps(run) + '\\n')\n"
            "number = len(open(folder + '/runs').readlines())\n"
            "print(open(folder + '/answer').read().replace('NUMBER', str(number)))\n"
        )
        settings = {
            "api_version": V1,
            "command": sys.executable,
            "arguments": ("-c", script),
            "interactive_mode": "IfAvailable",
        }
        return ExecSignIn(**{**settings, **changes})

    def answers(self, status: Any, **changes: Any) -> None:
        credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status, **changes}
        (self.folder / "answer").write_text(json.dumps(credential))

    @property
    def runs(self) -> list[dict[str, Any]]:
        file = self.folder / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    found = Plugin(tmp_path)
    found.answers({"token": "token-NUMBER"})
    return found


def through(server: str, sign_in: ExecSignIn) -> Connection:
    return Connection(server=server, path_prefix="", sign_in=sign_in)


async def test_a_plugin_is_told_the_cluster_and_whether_somebody_is_there(plugin: Plugin) -> None:
    door = Door({"token-1"})
    cluster = {"server": "https://a", "config": {"audience": "me"}}
    sign_in = plugin.as_sign_in(cluster=cluster, environment=(("EXTRA", "more"),))
    async with serving(door.handle) as server:
        assert await ask(through(server, sign_in), World()) == [200]
    (run,) = plugin.runs
    assert json.loads(run["info"]) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": cluster},
    }
    assert run["extra"] == "more"
    assert run["stdin"] == "", "without a terminal there is nothing to wait for"


async def test_a_credential_is_kept_until_shortly_before_it_expires(plugin: Plugin) -> None:
    door, world = Door({"token-1", "token-2"}), World()
    plugin.answers({"token": "token-NUMBER", "expirationTimestamp": "2023-11-14T22:23:20Z"})
    async with (
        serving(door.handle) as server,
        open_transport(through(server, plugin.sign_in), world.outside) as transport,
    ):
        for now_s in (1_700_000_000, 1_700_000_589, 1_700_000_591):
            world.now_s = now_s
            await transport.send(GET)
    assert door.knocked == ["token-1", "token-1", "token-2"]


async def test_a_refused_credential_is_renewed_once_and_the_request_sent_again(
    plugin: Plugin,
) -> None:
    door = Door({"token-2"})
    async with serving(door.handle) as server:
        assert await ask(through(server, plugin.sign_in), World(), times=2) == [200, 200]
    assert door.knocked == ["token-1", "token-2", "token-2"]


async def test_a_server_that_refuses_everybody_is_asked_twice_and_no_more(plugin: Plugin) -> None:
    door = Door(set())
    async with serving(door.handle) as server:
        assert await ask(through(server, plugin.sign_in), World()) == [401]
    assert door.knocked == ["token-1", "token-2"]


async def test_requests_that_are_refused_together_renew_together(plugin: Plugin) -> None:
    door = Door({"token-2"})
    async with (
        serving(door.handle) as server,
        open_transport(through(server, plugin.sign_in), World().outside) as transport,
    ):
        answers = await asyncio.gather(*(transport.send(GET) for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert len(plugin.runs) == 2


async def test_a_plugin_that_must_ask_is_not_started_where_nobody_answers(plugin: Plugin) -> None:
    sign_in = plugin.as_sign_in(interactive_mode="Always")
    with pytest.raises(Unauthorized, match="needs a terminal"):
        await ask(through("https://127.0.0.1:1", sign_in), World())
    assert plugin.runs == []


async def test_an_absent_plugin_is_named_with_its_install_hint(plugin: Plugin) -> None:
    sign_in = plugin.as_sign_in(command="no-such-plugin", install_hint="Get it from the shop.")
    with pytest.raises(Unauthorized) as caught:
        await ask(through("https://127.0.0.1:1", sign_in), World())
    assert str(caught.value) == (
        "cannot sign in with the plugin no-such-plugin: it cannot be run: "
        "No such file or directory. Get it from the shop."
    )


@pytest.mark.parametrize(
    ("status", "changes", "expected"),
    [
        ({}, {}, "neither a token nor a certificate"),
        (None, {}, "has no status"),
        ({"token": "s3cret"}, {"kind": "Secret"}, "did not print an ExecCredential"),
        ({"token": "s3cret"}, {"apiVersion": "v1"}, f"did not answer in {V1}"),
        ({"clientCertificateData": "s3cret"}, {}, "a certificate without its key"),
        ({"token": "s3cret\nx: y"}, {}, "characters that no token has"),
        ({"token": "s3cret", "expirationTimestamp": "soon"}, {}, "is not a time"),
        ({"token": "s3cret", "expirationTimestamp": "2030-01-01T00:00:00"}, {}, "no time zone"),
        ({"clientCertificateData": "s3cret", "clientKeyData": "s3cret"}, {}, "not a PEM pair"),
    ],
)
async def test_an_answer_that_is_none_is_refused_and_not_shown(
    plugin: Plugin, status: Any, changes: dict[str, str], expected: str
) -> None:
    plugin.answers(status, **changes)
    with pytest.raises(Unauthorized, match=expected) as caught:
        await ask(through("https://127.0.0.1:1", plugin.sign_in), World())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "expected"),
    [("print('s3cret')", "did not print JSON"), ("raise SystemExit(3)", "exit code 3")],
)
async def test_a_plugin_that_fails_is_named(plugin: Plugin, script: str, expected: str) -> None:
    sign_in = plugin.as_sign_in(arguments=("-c", script))
    with pytest.raises(Unauthorized, match=expected) as caught:
        await ask(through("https://127.0.0.1:1", sign_in), World())
    assert "s3cret" not in str(caught.value)


# --- certificates


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


async def peer_name(request: web.BaseRequest) -> web.Response:
    assert request.transport is not None
    peer = request.transport.get_extra_info("peercert")
    return web.Response(text=dict(pair[0] for pair in peer["subject"])["commonName"])


async def body_of(connection: Connection) -> bytes:
    async with open_transport(connection, World().outside) as transport:
        return (await transport.send(GET)).body


async def test_an_inline_certificate_is_shown_and_leaves_no_file(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate = authority.client("alice")
    async with serving(peer_name, server_tls(authority, wants_certificate=True)) as server:
        connection = Connection(server, "", ca_pem=authority.ca_pem, certificate=certificate)
        assert await body_of(connection) == b"alice"
    assert os.listdir(tmp_path) == []


async def test_where_no_file_lives_in_memory_a_private_one_is_used_and_removed(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr("os.memfd_create")
    seen: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def noting(context: ssl.SSLContext, path: str, password: Callable[[], bytes]) -> None:
        seen.append(stat.S_IMODE(Path(path).stat().st_mode))
        load(context, path, password=password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", noting)
    Http1Transport("https://127.0.0.1:1", certificate=authority.client("alice"))
    assert seen == [0o600]
    assert os.listdir(tmp_path) == []


async def test_a_certificate_from_a_plugin_is_shown(authority: Authority, plugin: Plugin) -> None:
    pair = authority.client("bob")
    plugin.answers(
        {
            "clientCertificateData": pair.certificate_pem.decode(),
            "clientKeyData": pair.key_pem.decode(),
        }
    )
    async with serving(peer_name, server_tls(authority, wants_certificate=True)) as server:
        connection = Connection(server, "", ca_pem=authority.ca_pem, sign_in=plugin.sign_in)
        assert await body_of(connection) == b"bob"


async def test_a_new_certificate_means_a_new_connection(authority: Authority) -> None:
    class Changing:
        names = ["alice", "bob"]

        async def current(self) -> Credential:
            return Credential(certificate=authority.client(self.names.pop(0)))

        async def renewed(self, refused: Credential) -> Credential:
            return refused

    async with serving(peer_name, server_tls(authority, wants_certificate=True)) as server:

        def connect(certificate: Certificate | None) -> Http1Transport:
            return Http1Transport(server, ca_pem=authority.ca_pem, certificate=certificate)

        async with AuthenticatedTransport(Changing(), connect) as transport:
            assert (await transport.send(GET)).body == b"alice"
            assert (await transport.send(GET)).body == b"bob"


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(authority: Authority) -> None:
    locked = authority.client("alice", password=b"s3cret")
    with pytest.raises(ValueError, match="has a password, which is not supported"):
        Http1Transport("https://127.0.0.1:1", certificate=locked)


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    one, other = authority.client("alice"), authority.client("bob")
    with pytest.raises(ValueError, match="not a PEM pair"):
        Http1Transport(
            "https://127.0.0.1:1", certificate=Certificate(one.certificate_pem, other.key_pem)
        )


# --- files


def test_a_token_file_is_read_again_once_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")

    async def test() -> list[str]:
        files = FileCredentials(FileSignIn(token=file), Credential("first"))
        seen = [(await files.current()).token]
        file.write_text("second")
        for _ in range(2):
            await asyncio.sleep(REREAD_S - 1)
            seen.append((await files.current()).token)
        file.unlink()
        await asyncio.sleep(REREAD_S)
        return [*seen, (await files.current()).token]

    assert in_virtual_time(test) == ["first", "first", "second", "second"]


async def test_a_refused_token_file_is_read_again_at_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    door = Door({"first"})
    async with serving(door.handle) as server:
        connection = Connection(server, "", token="first", sign_in=FileSignIn(token=file))
        async with open_transport(connection, World().outside) as transport:
            assert (await transport.send(GET)).status == 200
            file.write_text("second")
            door.good = {"second"}
            assert (await transport.send(GET)).status == 200
            door.good = set()
            assert (await transport.send(GET)).status == 401
    assert door.knocked == ["first", "first", "second", "second"]


async def test_certificate_files_are_read_again_too(authority: Authority, tmp_path: Path) -> None:
    files = (tmp_path / "crt", tmp_path / "key")
    sign_in = FileSignIn(certificate=files)
    seen = []
    for name in ("alice", "bob"):
        pair = authority.client(name)
        files[0].write_bytes(pair.certificate_pem)
        files[1].write_bytes(pair.key_pem)
        credentials = FileCredentials(sign_in, Credential())
        seen.append((await credentials.current()).certificate == pair)
    assert seen == [True, True]


def test_a_pod_finds_its_cluster(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", "ca"), ("namespace", "ours\n")):
        (tmp_path / name).write_text(text)
    found = in_cluster_connection(tmp_path, "fd00::1", "6443")
    assert (found.server, found.namespace, found.token) == ("https://[fd00::1]:6443", "ours", "t")
    assert found.ca_pem == b"ca"
    assert found.sign_in == FileSignIn(token=tmp_path / "token")


def test_a_pod_without_a_service_account_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="token cannot be read: No such file"):
        in_cluster_connection(tmp_path, "10.0.0.1", "443")


# --- the way there


async def test_a_server_is_checked_against_the_name_the_kubeconfig_gives() -> None:
    named = new_authority("kube.internal")
    door = Door({""})
    async with serving(door.handle, server_tls(named)) as server:
        wrong = Connection(server, "", ca_pem=named.ca_pem)
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await Once(wrong).send()
        right = Connection(server, "", ca_pem=named.ca_pem, tls_server_name="kube.internal")
        assert (await Once(right).send()).status == 200


@dataclass
class Once:
    """One attempt, without the retries."""

    connection: Connection

    async def send(self) -> Response:
        c = self.connection
        async with Http1Transport(
            c.server, ca_pem=c.ca_pem, proxy=c.proxy, server_name=c.tls_server_name
        ) as transport:
            return await transport.send(GET)


class ConnectProxy:
    """An HTTP proxy that knows CONNECT only."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> None:
        self.answer = answer
        self.asked: list[str] = []
        self._pipes: list[asyncio.Task[None]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.asked.append(head)
        writer.write(self.answer)
        if b" 200 " not in self.answer:
            return
        host, port = head.split()[1].rsplit(":", 1)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(pipe(reader, there_writer), pipe(there_reader, writer))


async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_a_proxy_is_asked_to_connect_and_sees_no_token(authority: Authority) -> None:
    proxy = ConnectProxy()
    door = Door({"t"})
    async with (
        serve_tcp(proxy.handle) as port,
        serving(door.handle, server_tls(authority)) as server,
    ):
        address = f"http://user:pass@127.0.0.1:{port}"
        connection = Connection(server, "", ca_pem=authority.ca_pem, proxy=address)
        request = Request("GET", "/a", headers={"authorization": "Bearer t"})
        async with open_transport(connection, World().outside) as transport:
            assert (await transport.send(request)).status == 200
    (head,) = proxy.asked
    assert head.startswith(f"CONNECT {server.removeprefix('https://')} HTTP/1.1")
    assert "proxy-authorization: Basic " in head
    assert "Bearer" not in head


async def test_a_proxy_that_refuses_is_named_as_the_one(authority: Authority) -> None:
    proxy = ConnectProxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    async with serve_tcp(proxy.handle) as port:
        address = f"http://user:pass@127.0.0.1:{port}"
        connection = Connection("https://127.0.0.1:1", "", ca_pem=authority.ca_pem, proxy=address)
        with pytest.raises(Unreachable, match=r"the proxy refuses to connect \(407\)") as caught:
            await Once(connection).send()
    assert "pass" not in str(caught.value)
