"""ID tokens are refreshed at an issuer, which is a real TLS server."""

from __future__ import annotations

import base64
import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from aiohttp import web

from datum_compute.api.errors import Unauthorized, Unreachable
from datum_compute.client.auth.connection import OidcSignIn
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.auth.kubeconfig import connection_of, load_kubeconfig
from datum_compute.client.auth.oidc import OidcRefresh
from tests.client.authority import Authority, new_authority
from tests.client.serving import server_tls, serving

NOW_S = 1_700_000_000.0
ENVIRONMENT = AuthEnvironment({}, False, lambda: NOW_S, Random(1))


def id_token(name: str, expires_s: float) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return ".".join((part({"alg": "none"}), part({"sub": name, "exp": expires_s}), "signature"))


OLD = id_token("old", NOW_S - 1)
NEW = id_token("new", NOW_S + 3600)


@dataclass
class Issuer:
    """Issues one new pair of tokens per refresh token."""

    expects_basic_auth: bool = True
    endpoint: str = ""
    refresh_tokens: list[str] = field(default_factory=lambda: ["refresh-1"])
    forms: list[dict[str, str]] = field(default_factory=list)

    async def handle(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/realm/.well-known/openid-configuration":
            own = f"https://{request.host}/realm/token"
            return web.json_response({"token_endpoint": self.endpoint or own})
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        basic = "Basic " + base64.b64encode(b"kube:s3cret").decode()
        by_header = request.headers.get("authorization") == basic
        by_body = form.get("client_secret") == "s3cret"
        known = form["refresh_token"] in self.refresh_tokens
        if not (by_header if self.expects_basic_auth else by_body) or not known:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.refresh_tokens = ["refresh-2"]
        return web.json_response({"id_token": NEW, "refresh_token": "refresh-2"})


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority()


def write_kubeconfig(folder: Path, issuer: str, authority: Authority, **changes: str) -> Path:
    """Write a kubeconfig whose user signs in by OIDC."""
    settings = {
        "idp-issuer-url": f"{issuer}/realm",
        "client-id": "kube",
        "client-secret": "s3cret",
        "id-token": OLD,
        "refresh-token": "refresh-1",
        "idp-certificate-authority-data": base64.b64encode(authority.ca_pem).decode(),
        **changes,
    }
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [
            {"name": "other", "user": {"token": "untouched"}},
            {"name": "u", "user": {"auth-provider": {"name": "oidc", "config": settings}}},
        ],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file = folder / "config"
    file.write_text(yaml.safe_dump(document))
    file.chmod(0o600)
    return file


def open_refresh(file: Path) -> OidcRefresh:
    sign_in = connection_of(load_kubeconfig([file])).sign_in
    assert isinstance(sign_in, OidcSignIn)
    return OidcRefresh(sign_in, ENVIRONMENT)


@pytest.mark.parametrize("expects_basic_auth", [True, False])
async def test_an_expired_token_is_refreshed_and_saved(
    tmp_path: Path, authority: Authority, expects_basic_auth: bool
) -> None:
    issuer = Issuer(expects_basic_auth)
    async with serving(issuer.handle, server_tls(authority)) as address:
        file = write_kubeconfig(tmp_path, address, authority)
        credential, expires_s = await open_refresh(file).obtain()
    assert (credential.token, expires_s) == (NEW, NOW_S + 3600)
    users = {u["name"]: u["user"] for u in yaml.safe_load(file.read_text())["users"]}
    config = users["u"]["auth-provider"]["config"]
    assert (config["id-token"], config["refresh-token"]) == (NEW, "refresh-2")
    assert users["other"] == {"token": "untouched"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == [file.name]
    # The next program reads the saved token and does not call the issuer.
    assert (await open_refresh(file).obtain())[0].token == NEW


async def test_a_rejected_token_that_has_not_expired_is_refreshed(
    tmp_path: Path, authority: Authority
) -> None:
    issuer = Issuer()
    good = id_token("good", NOW_S + 3600)
    async with serving(issuer.handle, server_tls(authority)) as address:
        refresh = open_refresh(write_kubeconfig(tmp_path, address, authority, **{"id-token": good}))
        assert (await refresh.obtain())[0].token == good
        assert (await refresh.obtain())[0].token == NEW
        issuer.refresh_tokens = ["refresh-2"]
        await refresh.obtain()
    assert [form["refresh_token"] for form in issuer.forms] == ["refresh-1", "refresh-2"]


async def test_a_refreshed_token_that_cannot_be_saved_logs_a_warning(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Issuer().handle, server_tls(authority)) as address:
        file = write_kubeconfig(tmp_path, address, authority)
        refresh = open_refresh(file)
        file.unlink()
        assert (await refresh.obtain())[0].token == NEW
    assert "could not be written" in caplog.text
    assert NEW not in caplog.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"refresh-token": "used up"}, r"rejected the refresh token \(400\)"),
        ({"refresh-token": ""}, "has expired and there is no refresh-token"),
        ({"idp-issuer-url": "http://issuer.test"}, "the address of the issuer is not https"),
    ],
)
async def test_the_error_of_a_failed_refresh_contains_the_next_action_and_no_secrets(
    tmp_path: Path, authority: Authority, changes: dict[str, str], expected: str
) -> None:
    async with serving(Issuer().handle, server_tls(authority)) as address:
        refresh = open_refresh(write_kubeconfig(tmp_path, address, authority, **changes))
        with pytest.raises(Unauthorized, match=expected) as caught:
            await refresh.obtain()
    assert "Sign in again" in str(caught.value)
    assert not [s for s in ("s3cret", "refresh-1", "used up", OLD) if s in str(caught.value)]


async def test_no_secret_is_sent_to_a_token_endpoint_without_tls(
    tmp_path: Path, authority: Authority
) -> None:
    issuer = Issuer(endpoint="http://evil.test/token")
    async with serving(issuer.handle, server_tls(authority)) as address:
        with pytest.raises(Unauthorized, match="no token endpoint with https"):
            await open_refresh(write_kubeconfig(tmp_path, address, authority)).obtain()
    assert issuer.forms == []


async def test_no_secret_is_sent_to_an_issuer_with_an_untrusted_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    issuer = Issuer()
    async with serving(issuer.handle, server_tls(new_authority())) as address:
        with pytest.raises(Unreachable, match="cannot reach the issuer"):
            await open_refresh(write_kubeconfig(tmp_path, address, authority)).obtain()
    assert issuer.forms == []
