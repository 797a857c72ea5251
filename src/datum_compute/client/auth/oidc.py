"""Credentials from an OpenID Connect issuer: an id token, refreshed when it has expired.

Rules:
- Secrets are sent over https only, and only to the endpoint in the issuer's configuration.
- A refresh token may be valid once, so new tokens are written to the kubeconfig before their use.
- The expiry of an id token is read without verification. The server verifies the token.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from datum_compute.api.errors import Unauthorized, Unreachable
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.client.auth.connection import OidcSignIn, validate_token
from datum_compute.client.auth.credentials import MARGIN_S, AuthEnvironment, Credential
from datum_compute.client.auth.kubeconfig_files import KubeconfigError, change_user
from datum_compute.client.transport.http1 import (
    NETWORK_ERRORS,
    FetchedResponse,
    describe_failure,
    fetch,
)
from datum_compute.client.transport.tls import client_tls_context

_log = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
REQUEST_TIMEOUT_S = 30.0
RESPONSE_BYTES_MAX = 1024 * 1024


class OidcRefresh:
    def __init__(self, sign_in: OidcSignIn, environment: AuthEnvironment) -> None:
        self._sign_in = sign_in
        self._environment = environment
        self._refresh_token = sign_in.refresh_token
        self._stored = sign_in.id_token  # used once, if it has not expired
        self._tls = client_tls_context(sign_in.ca_pem)

    async def obtain(self) -> tuple[Credential, float | None]:
        """Return the stored token if it is valid, otherwise a new one."""
        stored, self._stored = self._stored, ""
        expires_s = _expiry(stored)
        if expires_s is not None and self._environment.unix_s() < expires_s - MARGIN_S:
            return Credential(stored), expires_s
        if not self._refresh_token:
            raise self._sign_in_error("the id-token has expired and there is no refresh-token")
        token = await self._refresh()
        return Credential(token), _expiry(token)

    async def _refresh(self) -> str:
        try:
            endpoint = await self._token_endpoint()
            answer = await self._request_tokens(endpoint)
        except NETWORK_ERRORS as error:
            # Drop the cause: it may contain the request, and with it the secrets.
            raise Unreachable(
                f"cannot reach the issuer {self._sign_in.issuer} to renew the id token: "
                f"{describe_failure(error).reason}. "
                "Check the network, or sign in again."
            ) from None
        return self._accept(answer)

    async def _token_endpoint(self) -> str:
        url = f"{self._sign_in.issuer}/.well-known/openid-configuration"
        if not _is_confidential(url):
            raise self._sign_in_error("the address of the issuer is not https")
        response = await self._fetch("GET", url)
        found = _parse_object(response.body) if response.status == 200 else {}
        endpoint = found.get("token_endpoint")
        if not isinstance(endpoint, str) or not _is_confidential(endpoint):
            raise self._sign_in_error(
                "the configuration of the issuer has no token endpoint with https"
            )
        return endpoint

    async def _request_tokens(self, endpoint: str) -> JsonObject:
        """Send the client secret in a header, and if that is refused, in the body."""
        sign_in = self._sign_in
        grant = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
        secret = {"client_id": sign_in.client_id, "client_secret": sign_in.client_secret}
        attempts: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
            ({"authorization": _basic(sign_in.client_id, sign_in.client_secret)}, grant),
            ({}, {**grant, **secret}),
        ]
        status = 0
        for headers, form in attempts if sign_in.client_secret else attempts[1:]:
            response = await self._fetch(
                "POST",
                endpoint,
                {**headers, "content-type": "application/x-www-form-urlencoded"},
                urlencode(form).encode(),
            )
            if response.status == 200:
                return _parse_object(response.body)
            status = response.status
        raise self._sign_in_error(f"the issuer rejected the refresh token ({status})")

    async def _fetch(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> FetchedResponse:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await fetch(
                method,
                url,
                headers=headers,
                body=body,
                tls=self._tls,
                bytes_max=RESPONSE_BYTES_MAX,
            )

    def _accept(self, answer: JsonObject) -> str:
        try:
            token = validate_token(str(answer.get("id_token") or ""), "the new id token")
        except KubeconfigError as error:
            raise self._sign_in_error(str(error)) from None
        given = answer.get("refresh_token")
        self._refresh_token = str(given) if given else self._refresh_token
        self._write_back(token)
        return token

    def _write_back(self, token: str) -> None:
        def change(user: JsonObject) -> None:
            config = user["auth-provider"]["config"]
            config["id-token"] = token
            config["refresh-token"] = self._refresh_token

        try:
            change_user(self._sign_in.file, self._sign_in.user, change)
        except (OSError, KeyError, TypeError, KubeconfigError) as error:
            _log.warning(
                "the renewed id token could not be written to %s (%s); "
                "the next run may have to sign in again",
                self._sign_in.file,
                type(error).__name__,
            )

    def _sign_in_error(self, why: str) -> Unauthorized:
        return Unauthorized(
            f"cannot sign in with the issuer {self._sign_in.issuer}: {why}. Sign in again."
        )


def _basic(client_id: str, secret: str) -> str:
    """Return the authorization header. RFC 6749 requires form encoding of both parts."""
    pair = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _expiry(token: str) -> float | None:
    """Return the expiry of an id token, or None if it is not a valid token."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, DecodeError):
        return None
    expires = claims.get("exp") if isinstance(claims, dict) else None
    return float(expires) if isinstance(expires, int | float) else None


def _is_confidential(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _parse_object(body: bytes) -> JsonObject:
    try:
        found: Any = decode(body)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
