"""Joining a cell with a token, renewing its certificate and changing its address."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from datum_compute.api.membership import KEY_HASH
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.server.access.client_certificates import IssuedCertificate, SigningRequest
from testkit.api_server.running_server import START_S, InProcessServer, causes
from tests.server.cell_world import CLUSTERS, COMPUTE, HUB, cell_user, hub_with_two_cells

TOKEN_TEXT = "join-one.the-secret-of-one"
JOINS, TOKENS = f"{COMPUTE}/celljoins", f"{COMPUTE}/jointokens"
SECRETS = f"{HUB}/api/v1/namespaces/karmada-cluster/secrets"
HOUR_S = 3600.0


def certify(requested: SigningRequest, user: str, groups: tuple[str, ...]) -> IssuedCertificate:
    return IssuedCertificate(
        f"{user} of {groups} with {requested.key_hash}", "authority", START_S + HOUR_S
    )


class Machine:
    """A machine with a key that joins as a cell."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "whatever")])
        request = x509.CertificateSigningRequestBuilder().subject_name(name)
        signed = request.sign(self.key, hashes.SHA256())
        self.request = signed.public_bytes(serialization.Encoding.PEM).decode()
        public = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self.key_hash = hashlib.sha256(public).hexdigest()

    def join(self, cell: str = "lhr", city: str = "LHR", **more: str) -> JsonObject:
        spec = {
            "cell": cell,
            "city": city,
            "endpoint": f"https://127.0.0.1:7443/planes/cells/{cell}",
            "hubToken": "token-of-the-hub",
            "authority": "authority-of-the-cell",
            "request": self.request,
            **more,
        }
        return {
            "apiVersion": "compute.datumapis.com/v1alpha",
            "kind": "CellJoin",
            "metadata": {},
            "spec": spec,
        }


def join_token(text: str = TOKEN_TEXT, *, cell: str = "", until_s: float = HOUR_S) -> JsonObject:
    return {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "JoinToken",
        "metadata": {"name": text.partition(".")[0]},
        "spec": {
            "tokenHash": hashlib.sha256(text.encode()).hexdigest(),
            "expiresAt": timestamp(START_S + until_s),
            "cell": cell,
        },
    }


@asynccontextmanager
async def hub_with_a_token(**token: Any) -> AsyncIterator[InProcessServer]:
    async with hub_with_two_cells(certify=certify) as server:
        await server.json("POST", TOKENS, join_token(**token))
        yield server


async def clusters(server: InProcessServer) -> list[str]:
    return [c["metadata"]["name"] for c in (await server.json("GET", CLUSTERS))["items"]]


async def test_a_join_creates_the_cluster_and_the_credentials_of_cell_and_hub() -> None:
    machine = Machine()
    async with hub_with_a_token() as server:
        answered = await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        assert (
            f"system:cell:lhr of ('system:cells',) with {machine.key_hash}"
            == (answered["status"]["certificate"])
        )
        assert "hubToken" not in answered["spec"]
        cluster = await server.json("GET", f"{CLUSTERS}/lhr")
        assert cluster["metadata"]["labels"] == {"topology.datum.net/city-code": "LHR"}
        assert cluster["metadata"]["annotations"][KEY_HASH] == machine.key_hash
        assert cluster["spec"]["apiEndpoint"].startswith("https://127.0.0.1:7443/")
        secret = await server.json("GET", f"{SECRETS}/lhr")
        assert set(secret["data"]) == {"token", "caBundle"}
        used = (await server.json("GET", f"{TOKENS}/join-one"))["status"]
        assert (used["usedBy"], used["keyHash"]) == ("lhr", machine.key_hash)


async def test_only_the_same_machine_can_use_a_token_again() -> None:
    machine = Machine()
    async with hub_with_a_token() as server:
        first = await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        again = await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        assert again["status"] == first["status"]
        refused = await server.status("POST", JOINS, Machine().join("ams", "AMS"), token=TOKEN_TEXT)
        assert refused["code"] == 403
        assert "was used by cell lhr" in refused["message"]
        other_name = await server.status(
            "POST", JOINS, machine.join("ams", "AMS"), token=TOKEN_TEXT
        )
        assert other_name["code"] == 403
        assert await clusters(server) == ["dfw", "iad", "lhr"]


async def test_the_same_machine_can_complete_an_interrupted_join() -> None:
    """The hub crashed after it had assigned the token and before it created the Cluster."""
    machine = Machine()
    async with hub_with_a_token() as server:
        used = {"status": {"usedBy": "lhr", "keyHash": machine.key_hash}}
        await server.merge(f"{TOKENS}/join-one/status", used)
        other = await server.status("POST", JOINS, Machine().join(), token=TOKEN_TEXT)
        assert other["code"] == 403
        await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        assert await clusters(server) == ["dfw", "iad", "lhr"]


async def test_an_expired_token_is_rejected_and_creates_no_objects() -> None:
    async with hub_with_a_token() as server:
        server.clock.now_s += 2 * HOUR_S
        refused = await server.status("POST", JOINS, Machine().join(), token=TOKEN_TEXT)
        assert refused["code"] == 403
        assert "has expired" in refused["message"]
        assert await clusters(server) == ["dfw", "iad"]
        assert (await server.json("GET", SECRETS))["items"] == []


@pytest.mark.parametrize("text", ["join-one.wrong", "join-two.the-secret-of-one", "join-one."])
async def test_an_invalid_token_gets_401(text: str) -> None:
    async with hub_with_a_token() as server:
        assert (await server.status("POST", JOINS, Machine().join(), token=text))["code"] == 401


async def test_a_token_for_one_cell_cannot_be_used_for_another() -> None:
    async with hub_with_a_token(cell="lhr") as server:
        refused = await server.status("POST", JOINS, Machine().join("ams", "AMS"), token=TOKEN_TEXT)
        assert "is for cell lhr" in refused["message"]
        await server.json("POST", JOINS, Machine().join(), token=TOKEN_TEXT)


async def test_an_existing_cell_name_needs_the_same_key() -> None:
    async with hub_with_a_token() as server:
        refused = await server.status("POST", JOINS, Machine().join("dfw", "DFW"), token=TOKEN_TEXT)
        assert refused["code"] == 409
        assert "cell token --cell dfw" in refused["message"]
        assert "status" not in await server.json("GET", f"{TOKENS}/join-one")


async def test_a_token_for_an_existing_cell_permits_a_new_machine() -> None:
    machine = Machine()
    async with hub_with_a_token(cell="dfw") as server:
        await server.json("POST", JOINS, machine.join("dfw", "DFW"), token=TOKEN_TEXT)
        cluster = await server.json("GET", f"{CLUSTERS}/dfw")
        assert cluster["metadata"]["annotations"][KEY_HASH] == machine.key_hash
        lost = await server.ask("GET", f"{CLUSTERS}/dfw", token="token-of-dfw")
        assert lost.status == 403, "the key of the machine before opens nothing any more"


async def test_a_city_has_one_cell() -> None:
    async with hub_with_a_token() as server:
        refused = await server.status("POST", JOINS, Machine().join("two", "dfw"), token=TOKEN_TEXT)
        assert refused["code"] == 409
        assert "city DFW is served by cell dfw" in refused["message"]
        assert await clusters(server) == ["dfw", "iad"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cell", "Not A Name"),
        ("request", "no request"),
        ("endpoint", "http://127.0.0.1:1"),
        ("city", ""),
        ("hubToken", ""),
    ],
)
async def test_errors_of_invalid_requests_name_the_field(field: str, value: str) -> None:
    async with hub_with_a_token() as server:
        sent = Machine().join(**{field: value})
        refused = await server.status("POST", JOINS, sent, token=TOKEN_TEXT)
        assert refused["code"] == 422
        assert set(causes(refused)) == {f"spec.{field}"}
        assert "status" not in await server.json("GET", f"{TOKENS}/join-one")


async def test_a_join_token_permits_only_the_join_request() -> None:
    async with hub_with_a_token() as server:
        for path in (CLUSTERS, TOKENS, SECRETS, "/api/v1/namespaces"):
            assert (await server.ask("GET", path, token=TOKEN_TEXT)).status == 403


async def test_a_cell_renews_its_certificate_for_its_own_key_only() -> None:
    machine = Machine()
    users = {"token-of-lhr": cell_user("lhr", machine.key_hash)}
    async with hub_with_two_cells(certify=certify, more_users=users) as server:
        await server.json("POST", TOKENS, join_token())
        await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        short = {"city": "", "endpoint": "", "hubToken": ""}
        renewed = await server.json("POST", JOINS, machine.join(**short), token="token-of-lhr")
        assert machine.key_hash in renewed["status"]["certificate"]
        for sent in (Machine().join(**short), machine.join("dfw", **short)):
            refused = await server.status("POST", JOINS, sent, token="token-of-lhr")
            assert refused["code"] in (403, 422)


async def test_a_cell_can_replace_only_its_own_token_of_the_hub() -> None:
    machine = Machine()
    users = {"token-of-lhr": cell_user("lhr", machine.key_hash)}
    async with hub_with_two_cells(certify=certify, more_users=users) as server:
        await server.json("POST", TOKENS, join_token())
        await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        before = (await server.json("GET", f"{SECRETS}/lhr"))["data"]
        renewal = machine.join(city="", endpoint="", hubToken="another")
        await server.json("POST", JOINS, renewal, token="token-of-lhr")
        after = (await server.json("GET", f"{SECRETS}/lhr"))["data"]
        assert base64.b64decode(after["token"]) == b"another"
        assert after["caBundle"] == before["caBundle"]
        foreign = machine.join("dfw", city="", endpoint="", hubToken="stolen")
        assert (await server.status("POST", JOINS, foreign, token="token-of-lhr"))["code"] >= 400
        await server.json("DELETE", f"{SECRETS}/lhr")
        await server.json("POST", JOINS, renewal, token="token-of-lhr")
        assert (await server.ask("GET", f"{SECRETS}/lhr")).status == 404, "it is not made again"


async def test_a_cell_can_change_only_its_own_address() -> None:
    machine, there = Machine(), "https://127.0.0.1:7555/planes/cells/lhr"
    users = {"token-of-lhr": cell_user("lhr", machine.key_hash)}
    async with hub_with_two_cells(certify=certify, more_users=users) as server:
        await server.json("POST", TOKENS, join_token())
        await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        move = machine.join(city="", endpoint=there, hubToken="")
        await server.json("POST", JOINS, move, token="token-of-lhr", dryRun="All")
        before = await server.json("GET", f"{CLUSTERS}/lhr")
        assert before["spec"]["apiEndpoint"] != there
        await server.json("POST", JOINS, move, token="token-of-lhr")
        after = await server.json("GET", f"{CLUSTERS}/lhr")
        assert after["spec"] == {**before["spec"], "apiEndpoint": there}
        foreign = machine.join("dfw", city="", endpoint=there, hubToken="")
        assert (await server.status("POST", JOINS, foreign, token="token-of-lhr"))["code"] >= 400
        assert there not in str(await server.json("GET", f"{CLUSTERS}/dfw"))


@pytest.mark.parametrize("address", ["http://a:1", "https://", "https://[::1", "https://a:x"])
async def test_the_address_of_a_cell_must_be_https(address: str) -> None:
    machine = Machine()
    users = {"token-of-lhr": cell_user("lhr", machine.key_hash)}
    async with hub_with_two_cells(certify=certify, more_users=users) as server:
        await server.json("POST", TOKENS, join_token())
        await server.json("POST", JOINS, machine.join(), token=TOKEN_TEXT)
        move = machine.join(city="", endpoint=address, hubToken="")
        refused = await server.status("POST", JOINS, move, token="token-of-lhr")
        assert (refused["code"], set(causes(refused))) == (422, {"spec.endpoint"})


async def test_joins_are_rejected_without_a_certificate_authority() -> None:
    async with hub_with_two_cells() as server:
        refused = await server.status("POST", JOINS, Machine().join())
        assert refused["code"] == 405
