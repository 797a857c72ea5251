"""Checks whether a registry has an image and would allow a pull, without pulling it.

- The check uses the OCI registry API: a request without credentials, then a token or the
  credentials of a pull secret, as the registry demands.
- Registries on loopback addresses are also tried over HTTP, as engines do; others only over HTTPS.
- Redirects are not followed, and proxies of the environment are not used.
- An unexpected response is not a verdict: only a pull is certain.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from urllib.parse import urlencode

from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
from datum_compute.client.transport.http1 import (
    NETWORK_ERRORS,
    FetchedResponse,
    describe_failure,
    fetch,
)
from datum_compute.client.transport.http1_connection import Http1Error
from datum_compute.client.transport.tls import client_tls_context
from datum_compute.drivers.containers.images import (
    find_credentials,
    registry_host,
    split_reference,
)
from datum_compute.drivers.queries import ImageCheck, ImageOutcome

CHECK_TIMEOUT_S = 8.0
_BODY_BYTES_MAX = 64 * 1024
_MESSAGE_CHARACTERS_MAX = 300
_DOCKER_HUB_HOST = "registry-1.docker.io"
_MANIFEST_TYPES = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_CHALLENGE_FIELD = re.compile(r'(\w+)="([^"]*)"')
_OUTCOMES: Mapping[int, ImageOutcome] = {404: "missing", 401: "denied", 403: "denied"}


async def check_registry(image: str, pull_configs: Sequence[bytes]) -> ImageCheck:
    registry = registry_host(image)
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            return await _check_manifest(client_tls_context(None), image, pull_configs)
    except (*NETWORK_ERRORS, DecodeError) as error:
        reason = describe_failure(error).reason
        return ImageCheck(outcome="unknown", words=f"registry {registry}: {reason}")


async def _check_manifest(
    tls: ssl.SSLContext, image: str, pull_configs: Sequence[bytes]
) -> ImageCheck:
    url = await _manifest_url(tls, image)
    responses = []
    for credentials in [*find_credentials(image, pull_configs), None]:
        response = await _request_manifest(tls, url, credentials)
        if response.status == 200:
            digest = response.headers.get("docker-content-digest", "")
            return ImageCheck(outcome="found", digest=digest)
        responses.append(response)
    first = responses[0]  # that of the first pull secret, if there is one
    outcome = _OUTCOMES.get(first.status, "unknown")
    return ImageCheck(outcome=outcome, words=_error_message(first))


async def _manifest_url(tls: ssl.SSLContext, image: str) -> str:
    name, reference = split_reference(image)
    registry = registry_host(image)
    path = name.removeprefix(f"{registry}/")
    if registry == "docker.io":
        path = path if "/" in path else f"library/{path}"
        registry = _DOCKER_HUB_HOST
    scheme = "https"
    if _is_loopback(registry):
        try:
            await fetch("GET", f"https://{registry}/v2/", tls=tls, bytes_max=0)
        except TimeoutError:
            raise
        except (OSError, Http1Error):
            scheme = "http"
    return f"{scheme}://{registry}/v2/{path}/manifests/{reference}"


async def _request_manifest(
    tls: ssl.SSLContext, url: str, credentials: JsonObject | None
) -> FetchedResponse:
    """Request the manifest, and once more as the challenge of the registry demands."""
    response = await _get(tls, url)
    challenge = response.headers.get("www-authenticate", "")
    if response.status != 401 or not challenge:
        return response
    basic = _basic_authorization(credentials) if credentials else ""
    if challenge.lower().startswith("basic"):
        return await _get(tls, url, basic) if basic else response
    token = await _request_token(tls, challenge, basic, url)
    return await _get(tls, url, f"Bearer {token}") if token else response


async def _request_token(tls: ssl.SSLContext, challenge: str, basic: str, url: str) -> str:
    """Return a token of the realm in the challenge; empty if there is none.

    Credentials for a registry on HTTPS are never sent over HTTP.
    """
    fields = dict(_CHALLENGE_FIELD.findall(challenge))
    realm = fields.get("realm", "")
    if not realm.startswith("https://") and not (realm and url.startswith("http://")):
        return ""
    query = {name: fields[name] for name in ("service", "scope") if name in fields}
    headers = {"authorization": basic} if basic else {}
    address = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}" if query else realm
    response = await fetch("GET", address, headers=headers, tls=tls, bytes_max=_BODY_BYTES_MAX)
    found = decode(response.body) if response.status == 200 else {}
    return str(found.get("token") or found.get("access_token") or "")


async def _get(tls: ssl.SSLContext, url: str, authorization: str = "") -> FetchedResponse:
    headers = {"accept": _MANIFEST_TYPES}
    if authorization:
        headers["authorization"] = authorization
    return await fetch("GET", url, headers=headers, tls=tls, bytes_max=_BODY_BYTES_MAX)


def _error_message(response: FetchedResponse) -> str:
    try:
        error = decode(response.body)["errors"][0]
        message = str(error.get("message") or error.get("code"))
    except (DecodeError, LookupError, TypeError, AttributeError):
        message = f"the registry answers {response.status}"
    return message[:_MESSAGE_CHARACTERS_MAX]


def _basic_authorization(credentials: JsonObject) -> str:
    pair = f"{credentials['username']}:{credentials['password']}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_loopback(registry: str) -> bool:
    host = registry.rsplit(":", 1)[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
