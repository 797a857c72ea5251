"""Credentials from plugins, helpers and files, with real servers and proxies on loopback."""

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
from datum_compute.client.auth.connection import Connection, ExecSignIn, FileSignIn, HelperSignIn
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
from tests.client.replay_transport import in_virtual_time
from tests.client.serving import server_tls, serving
from tests.stream_servers import serve_tcp

GET = Request("GET", "/a")
V1 = "client.authentication.k8s.io/v1"


@dataclass
class FakeEnvironment:
    """The environment of a sign-in, with a clock that a test sets."""

    now_s: float = 1_700_000_000.0
    is_terminal: bool = False
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})

    @property
    def auth(self) -> AuthEnvironment:
        return AuthEnvironment(self.environ, self.is_terminal, lambda: self.now_s, Random(1))


@dataclass
class TokenServer:
    """Accepts certain tokens, and records the token of each request."""

    accepted: set[str]
    received: list[str] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.received.append(token)
        return web.Response(status=200 if token in self.accepted else 401)


async def send_requests(
    connection: Connection, environment: FakeEnvironment, times: int = 1
) -> list[int]:
    async with open_transport(connection, environment.auth) as transport:
        return [(await transport.send(GET)).status for _ in range(times)]


# --- plugins


@dataclass
class Plugin:
    """A program that prints the credential of the test and records how it was started."""

    folder: Path

    @property
    def sign_in(self) -> ExecSignIn:
        return self.build_sign_in()

    def build_sign_in(self, **changes: Any) -> ExecSignIn:
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

    def set_credential(self, status: Any, **changes: Any) -> None:
        credential = {"apiVersion": V1, "kind": "ExecCredential", "status": status, **changes}
        (self.folder / "answer").write_text(json.dumps(credential))

    @property
    def runs(self) -> list[dict[str, Any]]:
        file = self.folder / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    found = Plugin(tmp_path)
    found.set_credential({"token": "token-NUMBER"})
    return found


def connect_with(server: str, sign_in: ExecSignIn) -> Connection:
    return Connection(server=server, path_prefix="", sign_in=sign_in)


async def test_a_plugin_receives_the_cluster_and_whether_there_is_a_terminal(
    plugin: Plugin,
) -> None:
    token_server = TokenServer({"token-1"})
    cluster = {"server": "https://a", "config": {"audience": "me"}}
    sign_in = plugin.build_sign_in(cluster=cluster, environment=(("EXTRA", "more"),))
    async with serving(token_server.handle) as server:
        assert await send_requests(connect_with(server, sign_in), FakeEnvironment()) == [200]
    (run,) = plugin.runs
    assert json.loads(run["info"]) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": cluster},
    }
    assert run["extra"] == "more"
    assert run["stdin"] == "", "without a terminal, stdin is empty"


async def test_a_credential_is_cached_until_shortly_before_it_expires(plugin: Plugin) -> None:
    token_server, environment = TokenServer({"token-1", "token-2"}), FakeEnvironment()
    plugin.set_credential({"token": "token-NUMBER", "expirationTimestamp": "2023-11-14T22:23:20Z"})
    async with (
        serving(token_server.handle) as server,
        open_transport(connect_with(server, plugin.sign_in), environment.auth) as transport,
    ):
        for now_s in (1_700_000_000, 1_700_000_589, 1_700_000_591):
            environment.now_s = now_s
            await transport.send(GET)
    assert token_server.received == ["token-1", "token-1", "token-2"]


async def test_a_rejected_credential_is_renewed_once_and_the_request_retried(
    plugin: Plugin,
) -> None:
    token_server = TokenServer({"token-2"})
    async with serving(token_server.handle) as server:
        assert await send_requests(
            connect_with(server, plugin.sign_in), FakeEnvironment(), times=2
        ) == [200, 200]
    assert token_server.received == ["token-1", "token-2", "token-2"]


async def test_a_request_is_sent_at_most_twice_if_all_credentials_are_rejected(
    plugin: Plugin,
) -> None:
    token_server = TokenServer(set())
    async with serving(token_server.handle) as server:
        assert await send_requests(connect_with(server, plugin.sign_in), FakeEnvironment()) == [401]
    assert token_server.received == ["token-1", "token-2"]


async def test_concurrent_rejected_requests_share_one_renewal(plugin: Plugin) -> None:
    token_server = TokenServer({"token-2"})
    async with (
        serving(token_server.handle) as server,
        open_transport(connect_with(server, plugin.sign_in), FakeEnvironment().auth) as transport,
    ):
        answers = await asyncio.gather(*(transport.send(GET) for _ in range(10)))
    assert {answer.status for answer in answers} == {200}
    assert len(plugin.runs) == 2


async def test_an_interactive_plugin_is_not_started_without_a_terminal(
    plugin: Plugin,
) -> None:
    sign_in = plugin.build_sign_in(interactive_mode="Always")
    with pytest.raises(Unauthorized, match="standard input is not a terminal"):
        await send_requests(connect_with("https://127.0.0.1:1", sign_in), FakeEnvironment())
    assert plugin.runs == []


async def test_the_error_of_a_missing_plugin_contains_its_install_hint(plugin: Plugin) -> None:
    sign_in = plugin.build_sign_in(command="no-such-plugin", install_hint="Get it from the shop.")
    with pytest.raises(Unauthorized) as caught:
        await send_requests(connect_with("https://127.0.0.1:1", sign_in), FakeEnvironment())
    assert str(caught.value) == (
        "cannot sign in with the plugin no-such-plugin: cannot run the program: "
        "No such file or directory. Get it from the shop."
    )


@pytest.mark.parametrize(
    ("status", "changes", "expected"),
    [
        ({}, {}, "neither a token nor a certificate"),
        (None, {}, "has no status"),
        ({"token": "s3cret"}, {"kind": "Secret"}, "the output is not an ExecCredential"),
        ({"token": "s3cret"}, {"apiVersion": "v1"}, f"the apiVersion of the output is not {V1}"),
        ({"clientCertificateData": "s3cret"}, {}, "has only one of certificate and key"),
        ({"token": "s3cret\nx: y"}, {}, "not allowed in a token"),
        ({"token": "s3cret", "expirationTimestamp": "soon"}, {}, "is not a time"),
        ({"token": "s3cret", "expirationTimestamp": "2030-01-01T00:00:00"}, {}, "no time zone"),
        ({"clientCertificateData": "s3cret", "clientKeyData": "s3cret"}, {}, "not a PEM pair"),
    ],
)
async def test_the_error_of_an_invalid_credential_does_not_contain_it(
    plugin: Plugin, status: Any, changes: dict[str, str], expected: str
) -> None:
    plugin.set_credential(status, **changes)
    with pytest.raises(Unauthorized, match=expected) as caught:
        await send_requests(connect_with("https://127.0.0.1:1", plugin.sign_in), FakeEnvironment())
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("script", "expected"),
    [("print('s3cret')", "the output is not JSON"), ("raise SystemExit(3)", "exit code 3")],
)
async def test_the_error_of_a_failed_plugin_does_not_contain_its_output(
    plugin: Plugin, script: str, expected: str
) -> None:
    sign_in = plugin.build_sign_in(arguments=("-c", script))
    with pytest.raises(Unauthorized, match=expected) as caught:
        await send_requests(connect_with("https://127.0.0.1:1", sign_in), FakeEnvironment())
    assert "s3cret" not in str(caught.value)


# --- certificates


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


async def peer_name(request: web.BaseRequest) -> web.Response:
    assert request.transport is not None
    peer = request.transport.get_extra_info("peercert")
    return web.Response(text=dict(pair[0] for pair in peer["subject"])["commonName"])


async def fetch_body(connection: Connection) -> bytes:
    async with open_transport(connection, FakeEnvironment().auth) as transport:
        return (await transport.send(GET)).body


async def test_an_inline_certificate_is_presented_and_leaves_no_file(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate = authority.client("alice")
    async with serving(peer_name, server_tls(authority, wants_certificate=True)) as server:
        connection = Connection(server, "", ca_pem=authority.ca_pem, certificate=certificate)
        assert await fetch_body(connection) == b"alice"
    assert os.listdir(tmp_path) == []


async def test_a_private_file_is_used_and_removed_without_files_in_memory(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delattr("os.memfd_create")
    seen: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def record_mode(context: ssl.SSLContext, path: str, password: Callable[[], bytes]) -> None:
        seen.append(stat.S_IMODE(Path(path).stat().st_mode))
        load(context, path, password=password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", record_mode)
    Http1Transport("https://127.0.0.1:1", certificate=authority.client("alice"))
    assert seen == [0o600]
    assert os.listdir(tmp_path) == []


async def test_a_certificate_of_a_plugin_is_presented(authority: Authority, plugin: Plugin) -> None:
    pair = authority.client("bob")
    plugin.set_credential(
        {
            "clientCertificateData": pair.certificate_pem.decode(),
            "clientKeyData": pair.key_pem.decode(),
        }
    )
    async with serving(peer_name, server_tls(authority, wants_certificate=True)) as server:
        connection = Connection(server, "", ca_pem=authority.ca_pem, sign_in=plugin.sign_in)
        assert await fetch_body(connection) == b"bob"


async def test_a_new_certificate_opens_a_new_connection(authority: Authority) -> None:
    class Changing:
        names = ["alice", "bob"]

        async def current(self) -> Credential:
            return Credential(certificate=authority.client(self.names.pop(0)))

        async def renew_rejected(self, rejected: Credential) -> Credential:
            return rejected

    async with serving(peer_name, server_tls(authority, wants_certificate=True)) as server:

        def connect(certificate: Certificate | None) -> Http1Transport:
            return Http1Transport(server, ca_pem=authority.ca_pem, certificate=certificate)

        async with AuthenticatedTransport(Changing(), connect) as transport:
            assert (await transport.send(GET)).body == b"alice"
            assert (await transport.send(GET)).body == b"bob"


def test_a_key_with_a_password_is_rejected_without_a_prompt(authority: Authority) -> None:
    locked = authority.client("alice", password=b"s3cret")
    with pytest.raises(ValueError, match="has a password, which is not supported"):
        Http1Transport("https://127.0.0.1:1", certificate=locked)


def test_a_key_of_another_certificate_is_rejected(authority: Authority) -> None:
    one, other = authority.client("alice"), authority.client("bob")
    with pytest.raises(ValueError, match="not a PEM pair"):
        Http1Transport(
            "https://127.0.0.1:1", certificate=Certificate(one.certificate_pem, other.key_pem)
        )


# --- files


def test_a_token_file_is_reloaded_once_a_minute(tmp_path: Path) -> None:
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


async def test_a_token_file_is_reloaded_at_once_after_a_rejection(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    token_server = TokenServer({"first"})
    async with serving(token_server.handle) as server:
        connection = Connection(server, "", token="first", sign_in=FileSignIn(token=file))
        async with open_transport(connection, FakeEnvironment().auth) as transport:
            assert (await transport.send(GET)).status == 200
            file.write_text("second")
            token_server.accepted = {"second"}
            assert (await transport.send(GET)).status == 200
            token_server.accepted = set()
            assert (await transport.send(GET)).status == 401
    assert token_server.received == ["first", "first", "second", "second"]


async def test_certificate_files_are_reloaded(authority: Authority, tmp_path: Path) -> None:
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


def test_a_pod_connects_to_its_cluster_with_its_service_account(tmp_path: Path) -> None:
    for name, text in (("token", "t"), ("ca.crt", "ca"), ("namespace", "ours\n")):
        (tmp_path / name).write_text(text)
    found = in_cluster_connection(tmp_path, "fd00::1", "6443")
    assert (found.server, found.namespace, found.token) == ("https://[fd00::1]:6443", "ours", "t")
    assert found.ca_pem == b"ca"
    assert found.sign_in == FileSignIn(token=tmp_path / "token")


def test_the_error_of_a_pod_without_a_service_account_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="token cannot be read: No such file"):
        in_cluster_connection(tmp_path, "10.0.0.1", "443")


# --- server names and proxies


async def test_the_certificate_is_verified_against_the_server_name_of_the_kubeconfig() -> None:
    named = new_authority("kube.internal")
    token_server = TokenServer({""})
    async with serving(token_server.handle, server_tls(named)) as server:
        wrong = Connection(server, "", ca_pem=named.ca_pem)
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            await SingleAttempt(wrong).send()
        right = Connection(server, "", ca_pem=named.ca_pem, tls_server_name="kube.internal")
        assert (await SingleAttempt(right).send()).status == 200


@dataclass
class SingleAttempt:
    """Sends a request without retries."""

    connection: Connection

    async def send(self) -> Response:
        c = self.connection
        async with Http1Transport(
            c.server, ca_pem=c.ca_pem, proxy=c.proxy, server_name=c.tls_server_name
        ) as transport:
            return await transport.send(GET)


class ConnectProxy:
    """An HTTP proxy that supports only CONNECT."""

    def __init__(self, response: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> None:
        self.response = response
        self.requests: list[str] = []
        self._pipes: list[asyncio.Task[None]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.requests.append(head)
        writer.write(self.response)
        if b" 200 " not in self.response:
            return
        host, port = head.split()[1].rsplit(":", 1)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        await asyncio.gather(copy_stream(reader, there_writer), copy_stream(there_reader, writer))


async def copy_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def test_a_proxy_receives_connect_without_the_token(authority: Authority) -> None:
    proxy = ConnectProxy()
    token_server = TokenServer({"t"})
    async with (
        serve_tcp(proxy.handle) as port,
        serving(token_server.handle, server_tls(authority)) as server,
    ):
        address = f"http://user:pass@127.0.0.1:{port}"
        connection = Connection(server, "", ca_pem=authority.ca_pem, proxy=address)
        request = Request("GET", "/a", headers={"authorization": "Bearer t"})
        async with open_transport(connection, FakeEnvironment().auth) as transport:
            assert (await transport.send(request)).status == 200
    (head,) = proxy.requests
    assert head.startswith(f"CONNECT {server.removeprefix('https://')} HTTP/1.1")
    assert "proxy-authorization: Basic " in head
    assert "Bearer" not in head


async def test_the_error_of_a_rejected_proxy_connection_names_the_proxy(
    authority: Authority,
) -> None:
    proxy = ConnectProxy(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
    async with serve_tcp(proxy.handle) as port:
        address = f"http://user:pass@127.0.0.1:{port}"
        connection = Connection("https://127.0.0.1:1", "", ca_pem=authority.ca_pem, proxy=address)
        with pytest.raises(Unreachable, match=r"the proxy refuses to connect \(407\)") as caught:
            await SingleAttempt(connection).send()
    assert "pass" not in str(caught.value)


def helper_sign_in(tmp_path: Path, script: str) -> HelperSignIn:
    file = tmp_path / "helper.py"
    file.write_text(script)
    return HelperSignIn(sys.executable, (str(file), "auth", "get-token"), "old")


async def test_a_rejected_token_is_replaced_by_that_of_the_helper_and_cached(
    tmp_path: Path,
) -> None:
    token_server = TokenServer({"new"})
    sign_in = helper_sign_in(tmp_path, "print('new')")
    async with serving(token_server.handle) as server:
        connection = Connection(server, "", token="old", sign_in=sign_in)
        async with open_transport(connection, FakeEnvironment().auth) as transport:
            assert (await transport.send(GET)).status == 200
            assert (await transport.send(GET)).status == 200
    assert token_server.received == ["old", "new", "new"]


async def test_the_error_of_a_failed_helper_does_not_contain_its_output(tmp_path: Path) -> None:
    token_server = TokenServer(set())
    sign_in = helper_sign_in(tmp_path, "import sys; print('s3cret'); sys.exit(4)")
    async with serving(token_server.handle) as server:
        connection = Connection(server, "", token="old", sign_in=sign_in)
        async with open_transport(connection, FakeEnvironment().auth) as transport:
            with pytest.raises(Unauthorized, match="exit code 4") as caught:
                await transport.send(GET)
    assert "s3cret" not in str(caught.value)
