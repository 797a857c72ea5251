"""The webhook over real TLS, in front of a real plane."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509

from datum_compute.admission.review import Requester
from datum_compute.api.errors import BadRequest, ServiceUnavailable
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.planes import PLATFORM, PlaneName, path_prefix
from datum_compute.app.certificates import ensure_certificate, issue_client_certificate
from datum_compute.app.listener import load_certificate, reload_certificate
from datum_compute.app.settings.settings import TlsPortSettings
from datum_compute.app.state_directory import StateError
from datum_compute.app.webhook import WebhookDispatcher, open_webhook_port, reviewed_plane
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.planes.roles import MANAGER_USER
from datum_compute.server.access.authentication import User
from datum_compute.server.http.listen import ServerCertificate
from testkit.api_server.granting import RBAC, cluster_binding, ensure_first_roles, user
from testkit.api_server.running_server import PROJECT, InProcessServer, running_server, workload
from tests.admission.reviews import review
from tests.stream_servers import close_at_once, serve_tcp

DEMO = PlaneName("project/demo")
MANAGER = "token-of-the-manager"
ANYWHERE = ("127.0.0.1", 0)
ENOUGH_S = 30.0


@dataclass
class Hook:
    url: str
    trusted: ssl.SSLContext

    async def post(self, path: str, body: Any, **headers: str) -> tuple[int, JsonObject]:
        sent = body if isinstance(body, bytes) else encode(body)
        headers = {"content-type": "application/json", **headers}
        return await self.ask("POST", path, data=BytesIO(sent), headers=headers)

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, JsonObject]:
        limit = aiohttp.ClientTimeout(total=ENOUGH_S)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(method, self.url + path, ssl=self.trusted, **more) as answer,
        ):
            body = await answer.read()
            return answer.status, decode(body) if body.startswith(b"{") else {}

    async def verdict(self, obj: JsonObject, name: str, path: str = "/validate") -> JsonObject:
        """On a create by somebody."""
        someone = {"username": name, "groups": ["system:authenticated"]}
        status, answer = await self.post(path, review(obj, user=someone))
        assert status == 200
        response: JsonObject = answer["response"]
        return response


def trusting(files: ServerCertificate, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(files.authority))
    if client is not None:
        context.load_cert_chain(client)
    return context


def dispatcher_for(server: InProcessServer, *, token: str = MANAGER) -> WebhookDispatcher:
    transport = InProcessTransport(server.api.dispatch)
    clients = {
        plane: Client(transport, prefix=path_prefix(plane), token=token, agent="webhook")
        for plane in (PLATFORM, DEMO)
    }
    return WebhookDispatcher(clients, server.clock)


@asynccontextmanager
async def a_project() -> AsyncIterator[InProcessServer]:
    """Where edith edits, vera looks on, and the manager has the rights that it is shipped with."""
    users = {MANAGER: User(MANAGER_USER, (), frozenset({"*"}))}
    async with running_server(users=users) as server:
        for plane in (PLATFORM, DEMO):
            await ensure_first_roles(server, plane)
        for name, role in (("edith", "project-editor"), ("vera", "project-viewer")):
            bound = cluster_binding(name, role, user(name))
            await server.json("POST", f"{PROJECT}{RBAC}/clusterrolebindings", bound)
        yield server


@asynccontextmanager
async def a_hook(
    dispatcher: WebhookDispatcher, state: Path, settings: TlsPortSettings | None = None
) -> AsyncIterator[Hook]:
    async with open_webhook_port(settings or TlsPortSettings(ANYWHERE), dispatcher, state) as port:
        folder = state / "webhook"
        authority = ServerCertificate(folder / "ca.crt", folder / "server.crt", folder / "x")
        yield Hook(f"https://127.0.0.1:{port}", trusting(authority))


@pytest.fixture
async def hook(tmp_path: Path) -> AsyncIterator[Hook]:
    async with a_project() as server, a_hook(dispatcher_for(server), tmp_path) as running:
        yield running


def sent(city: str = "DFW") -> JsonObject:
    made = workload()
    made["spec"]["placements"][0]["cityCodes"] = [city]
    return made


async def test_rights_and_cities_are_those_of_the_plane(hook: Hook) -> None:
    assert (await hook.verdict(sent(), "edith")) == {"uid": "review-1", "allowed": True}
    refused = await hook.verdict(sent(), "vera")
    (cause,) = refused["status"]["details"]["causes"]
    assert cause["field"] == "spec.template.spec.networkInterfaces"
    unknown = await hook.verdict(sent("DFX"), "edith")
    assert "did you mean DFW" in unknown["status"]["message"]
    assert (await hook.verdict(sent(), "edith", "/validate/project/demo"))["allowed"] is True


async def test_defaults_come_as_a_patch(hook: Hook) -> None:
    response = await hook.verdict(sent("dfw"), "edith", "/mutate")
    operations = decode(base64.b64decode(response["patch"]))
    assert ("replace", "DFW") in [(o["op"], o["value"]) for o in operations]


NONSENSE = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"7", 400),
    (b"\xff\xfe", 400),
    (b'{"apiVersion":"v1","kind":"Pod"}', 400),
    (b"[" * 100_000, 400),
    (encode(review(None)), 400),
    (encode(review(sent(), userInfo={})), 200),
    (encode(review({"spec": {"placements": [{}]}})), 200),
    (encode(review({"metadata": 7, "spec": None}, {"metadata": [], "spec": []})), 200),
    (b"x" * (3 * 1024 * 1024 + 1), 413),
]


@pytest.mark.parametrize("path", ["/validate", "/mutate"])
@pytest.mark.parametrize(("body", "code"), NONSENSE, ids=range(len(NONSENSE)))
async def test_nonsense_is_answered_and_never_by_a_server_error(
    hook: Hook, path: str, body: bytes, code: int
) -> None:
    status, answer = await hook.post(path, body)
    assert status == code
    assert answer["kind"] == ("AdmissionReview" if code == 200 else "Status")


async def test_other_paths_methods_and_types_are_refused_by_name(hook: Hook) -> None:
    assert (await hook.ask("GET", "/healthz"))[0] == 200
    assert (await hook.ask("GET", "/validate"))[0] == 405
    assert (await hook.post("/other", review(sent())))[0] == 404
    yaml = {"content-type": "application/yaml"}
    assert (await hook.post("/validate", review(sent()), **yaml))[0] == 415


async def test_a_user_of_nobody_is_refused_and_not_let_through(hook: Hook) -> None:
    status, answer = await hook.post("/validate", review(sent(), userInfo={}))
    assert (status, answer["response"]["allowed"]) == (200, False)


async def test_a_plane_that_does_not_answer_makes_writes_wait_and_not_pass(tmp_path: Path) -> None:
    async with a_project() as server:
        lost = dispatcher_for(server, token="no-such-token")
        async with a_hook(lost, tmp_path) as hook:
            refused = await hook.verdict(sent(), "edith")
            assert (refused["allowed"], refused["status"]["code"]) == (False, 503)
            elsewhere = await hook.verdict(sent(), "edith", "/validate/project/other")
            assert elsewhere["status"]["reason"] == "ServiceUnavailable"


async def test_with_several_projects_a_write_for_none_of_them_is_refused_for_good(
    tmp_path: Path,
) -> None:
    async with a_project() as server:
        one = dispatcher_for(server)
        clients = {**one.clients, PlaneName("project/other"): one.clients[DEMO]}
        async with a_hook(WebhookDispatcher(clients, server.clock), tmp_path) as hook:
            unclear = await hook.verdict(sent(), "edith")
            assert (unclear["allowed"], unclear["status"]["code"]) == (False, 400)
            assert "/validate/project/<name>" in unclear["status"]["message"]
            assert (await hook.verdict(sent(), "edith", "/validate/project/demo"))["allowed"]


@pytest.mark.parametrize(
    ("planes", "in_path", "extra", "expected"),
    [
        ("platform project/a", "", {}, "project/a"),
        ("project/a project/b", "project/b", {}, "project/b"),
        ("project/a project/b", "", {"parent-name": "a"}, "project/a"),
        ("project/a project/b", "project/b", {"parent-name": "a"}, "project/a"),
        ("project/a", "", {"parent-name": "x", "parent-type": "Organization"}, "project/a"),
    ],
)
def test_claims_come_before_the_path_and_the_only_project_comes_last(
    planes: str, in_path: str, extra: dict[str, str], expected: str
) -> None:
    known = [PlaneName(plane) for plane in planes.split()]
    claims = {f"iam.miloapis.com/{key}": (value,) for key, value in extra.items()}
    assert reviewed_plane(known, in_path, Requester("ann", extra=claims)) == expected


def test_no_other_project_is_taken_for_want_of_the_right_one() -> None:
    known = [PlaneName("project/a"), PlaneName("project/b")]
    with pytest.raises(BadRequest, match="/validate/project/<name>"):
        reviewed_plane(known, "", Requester("ann"))
    named = Requester("ann", extra={"iam.miloapis.com/parent-name": ("c",)})
    with pytest.raises(ServiceUnavailable, match="project/c"):
        reviewed_plane(known[:1], "", named)


# --- certificates


async def serial_number(hook: Hook) -> int:
    port = int(hook.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=hook.trusted)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


def serial_of(certificate: Path) -> int:
    return x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number


def renewed(folder: Path) -> ServerCertificate:
    """Signed again by the same authority."""
    (folder / "server.crt").unlink()
    return ensure_certificate(folder, datetime.now(UTC))


async def test_a_new_certificate_counts_from_the_next_connection_on(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    async with serve_tcp(close_at_once, context) as port:
        hook = Hook(f"x:{port}", trusting(files))
        first = await serial_number(hook)
        following = asyncio.create_task(
            reload_certificate(context, files.certificate, files.key, 0.01)
        )
        await asyncio.sleep(0)  # it has seen the first pair
        renewal = renewed(tmp_path)
        async with asyncio.timeout(ENOUGH_S):
            while (shown := await serial_number(hook)) == first:
                pass
        assert shown == serial_of(renewal.certificate)
        following.cancel()


async def test_half_of_a_new_pair_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    key = files.key.read_bytes()
    renewed(tmp_path)
    new_key = files.key.read_bytes()
    files.key.write_bytes(key)
    assert not load_certificate(context, files.certificate, files.key)
    files.key.write_bytes(b"")
    assert not load_certificate(context, files.certificate, files.key)
    files.key.write_bytes(new_key)
    assert load_certificate(context, files.certificate, files.key)


async def test_its_own_certificate_names_the_service(hook: Hook, tmp_path: Path) -> None:
    made = x509.load_pem_x509_certificate((tmp_path / "webhook" / "server.crt").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "compute-webhook.kube-system.svc" in names.get_values_for_type(x509.DNSName)


async def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    wrong = tmp_path / "tls.crt"
    wrong.write_text("nothing")
    settings = TlsPortSettings(ANYWHERE, wrong, wrong)
    async with a_project() as server:
        with pytest.raises(StateError, match=r"tls\.crt"):
            async with open_webhook_port(settings, dispatcher_for(server), tmp_path):
                pass


async def test_with_an_authority_only_those_it_signed_may_ask(tmp_path: Path) -> None:
    now, own, shown = datetime.now(UTC), tmp_path / "own", tmp_path / "client.pem"
    own.mkdir()
    files = ensure_certificate(own, now)
    client = issue_client_certificate(own, "api", now, lifetime=timedelta(hours=1))
    shown.write_bytes(client.certificate + client.key)
    settings = TlsPortSettings(ANYWHERE, files.certificate, files.key, files.authority)
    async with (
        a_project() as server,
        open_webhook_port(settings, dispatcher_for(server), tmp_path) as port,
    ):
        url = f"https://127.0.0.1:{port}"
        known = Hook(url, trusting(files, shown))
        assert (await known.verdict(sent(), "edith"))["allowed"] is True
        with pytest.raises(aiohttp.ClientError):
            await Hook(url, trusting(files)).verdict(sent(), "edith")
