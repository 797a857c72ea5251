"""The webhook on a real TLS port, with a real plane."""

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
        return await self.request("POST", path, data=BytesIO(sent), headers=headers)

    async def request(self, method: str, path: str, **more: Any) -> tuple[int, JsonObject]:
        limit = aiohttp.ClientTimeout(total=ENOUGH_S)
        async with (
            aiohttp.ClientSession(timeout=limit) as session,
            session.request(method, self.url + path, ssl=self.trusted, **more) as answer,
        ):
            body = await answer.read()
            return answer.status, decode(body) if body.startswith(b"{") else {}

    async def review_create(
        self, obj: JsonObject, name: str, path: str = "/validate"
    ) -> JsonObject:
        """Review a create request of this user."""
        reviewed_user = {"username": name, "groups": ["system:authenticated"]}
        status, answer = await self.post(path, review(obj, user=reviewed_user))
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
    """A project with the editor edith, the viewer vera and the role of the manager."""
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


def workload_in_city(city: str = "DFW") -> JsonObject:
    made = workload()
    made["spec"]["placements"][0]["cityCodes"] = [city]
    return made


async def test_permissions_and_cities_of_the_plane_are_checked(hook: Hook) -> None:
    assert (await hook.review_create(workload_in_city(), "edith")) == {
        "uid": "review-1",
        "allowed": True,
    }
    refused = await hook.review_create(workload_in_city(), "vera")
    (cause,) = refused["status"]["details"]["causes"]
    assert cause["field"] == "spec.template.spec.networkInterfaces"
    unknown = await hook.review_create(workload_in_city("DFX"), "edith")
    assert "did you mean DFW" in unknown["status"]["message"]
    assert (await hook.review_create(workload_in_city(), "edith", "/validate/project/demo"))[
        "allowed"
    ] is True


async def test_defaults_are_returned_as_a_patch(hook: Hook) -> None:
    response = await hook.review_create(workload_in_city("dfw"), "edith", "/mutate")
    operations = decode(base64.b64decode(response["patch"]))
    assert ("replace", "DFW") in [(o["op"], o["value"]) for o in operations]


INVALID_REQUESTS = [
    (b"", 400),
    (b"{", 400),
    (b"[]", 400),
    (b"7", 400),
    (b"\xff\xfe", 400),
    (b'{"apiVersion":"v1","kind":"Pod"}', 400),
    (b"[" * 100_000, 400),
    (encode(review(None)), 400),
    (encode(review(workload_in_city(), userInfo={})), 200),
    (encode(review({"spec": {"placements": [{}]}})), 200),
    (encode(review({"metadata": 7, "spec": None}, {"metadata": [], "spec": []})), 200),
    (b"x" * (3 * 1024 * 1024 + 1), 413),
]


@pytest.mark.parametrize("path", ["/validate", "/mutate"])
@pytest.mark.parametrize(("body", "code"), INVALID_REQUESTS, ids=range(len(INVALID_REQUESTS)))
async def test_an_invalid_request_is_not_a_server_error(
    hook: Hook, path: str, body: bytes, code: int
) -> None:
    status, answer = await hook.post(path, body)
    assert status == code
    assert answer["kind"] == ("AdmissionReview" if code == 200 else "Status")


async def test_other_paths_methods_and_media_types_are_rejected(hook: Hook) -> None:
    assert (await hook.request("GET", "/healthz"))[0] == 200
    assert (await hook.request("GET", "/validate"))[0] == 405
    assert (await hook.post("/other", review(workload_in_city())))[0] == 404
    yaml = {"content-type": "application/yaml"}
    assert (await hook.post("/validate", review(workload_in_city()), **yaml))[0] == 415


async def test_a_review_without_a_user_is_rejected(hook: Hook) -> None:
    status, answer = await hook.post("/validate", review(workload_in_city(), userInfo={}))
    assert (status, answer["response"]["allowed"]) == (200, False)


async def test_writes_fail_and_can_be_retried_while_the_plane_does_not_answer(
    tmp_path: Path,
) -> None:
    async with a_project() as server:
        lost = dispatcher_for(server, token="no-such-token")
        async with a_hook(lost, tmp_path) as hook:
            refused = await hook.review_create(workload_in_city(), "edith")
            assert (refused["allowed"], refused["status"]["code"]) == (False, 503)
            elsewhere = await hook.review_create(
                workload_in_city(), "edith", "/validate/project/other"
            )
            assert elsewhere["status"]["reason"] == "ServiceUnavailable"


async def test_a_write_for_an_unknown_project_is_rejected(
    tmp_path: Path,
) -> None:
    async with a_project() as server:
        one = dispatcher_for(server)
        clients = {**one.clients, PlaneName("project/other"): one.clients[DEMO]}
        async with a_hook(WebhookDispatcher(clients, server.clock), tmp_path) as hook:
            unclear = await hook.review_create(workload_in_city(), "edith")
            assert (unclear["allowed"], unclear["status"]["code"]) == (False, 400)
            assert "/validate/project/<name>" in unclear["status"]["message"]
            assert (
                await hook.review_create(workload_in_city(), "edith", "/validate/project/demo")
            )["allowed"]


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
def test_the_project_is_read_from_claims_then_from_the_path(
    planes: str, in_path: str, extra: dict[str, str], expected: str
) -> None:
    known = [PlaneName(plane) for plane in planes.split()]
    claims = {f"iam.miloapis.com/{key}": (value,) for key, value in extra.items()}
    assert reviewed_plane(known, in_path, Requester("ann", extra=claims)) == expected


def test_an_unknown_project_is_not_replaced_by_another() -> None:
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


def read_serial_number(certificate: Path) -> int:
    return x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number


def renew_certificate(folder: Path) -> ServerCertificate:
    """Issue a certificate again with the same authority."""
    (folder / "server.crt").unlink()
    return ensure_certificate(folder, datetime.now(UTC))


async def test_a_new_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    async with serve_tcp(close_at_once, context) as port:
        hook = Hook(f"x:{port}", trusting(files))
        first = await serial_number(hook)
        following = asyncio.create_task(
            reload_certificate(context, files.certificate, files.key, 0.01)
        )
        await asyncio.sleep(0)  # it has loaded the first pair
        renewal = renew_certificate(tmp_path)
        async with asyncio.timeout(ENOUGH_S):
            while (shown := await serial_number(hook)) == first:
                pass
        assert shown == read_serial_number(renewal.certificate)
        following.cancel()


async def test_a_new_certificate_without_its_key_is_not_used(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, datetime.now(UTC))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    key = files.key.read_bytes()
    renew_certificate(tmp_path)
    new_key = files.key.read_bytes()
    files.key.write_bytes(key)
    assert not load_certificate(context, files.certificate, files.key)
    files.key.write_bytes(b"")
    assert not load_certificate(context, files.certificate, files.key)
    files.key.write_bytes(new_key)
    assert load_certificate(context, files.certificate, files.key)


async def test_the_generated_certificate_contains_the_name_of_the_service(
    hook: Hook, tmp_path: Path
) -> None:
    made = x509.load_pem_x509_certificate((tmp_path / "webhook" / "server.crt").read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "compute-webhook.kube-system.svc" in names.get_values_for_type(x509.DNSName)


async def test_the_error_of_an_invalid_certificate_names_the_file(tmp_path: Path) -> None:
    wrong = tmp_path / "tls.crt"
    wrong.write_text("nothing")
    settings = TlsPortSettings(ANYWHERE, wrong, wrong)
    async with a_project() as server:
        with pytest.raises(StateError, match=r"tls\.crt"):
            async with open_webhook_port(settings, dispatcher_for(server), tmp_path):
                pass


async def test_clients_need_a_certificate_if_an_authority_is_set(tmp_path: Path) -> None:
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
        assert (await known.review_create(workload_in_city(), "edith"))["allowed"] is True
        with pytest.raises(aiohttp.ClientError):
            await Hook(url, trusting(files)).review_create(workload_in_city(), "edith")
