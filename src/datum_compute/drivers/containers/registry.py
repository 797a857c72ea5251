"""Checks whether a registry has an image and would allow a pull, without pulling it.

- The check uses the OCI registry API: a request without credentials, then a token or the
  credentials of a pull secret, as the registry demands.
- Registries on loopback addresses are also tried over HTTP, as engines do; others only over HTTPS.
- Redirects are not followed.
- An unexpected response is not a verdict: only a pull is certain.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import aiohttp

from datum_compute.api.meta.codec import DecodeError, JsonObject, decode
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


@dataclass(frozen=True, slots=True)
class _RegistryResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error_message(self) -> str:
        try:
            error = decode(self.body)["errors"][0]
            message = str(error.get("message") or error.get("code"))
        except (DecodeError, LookupError, TypeError, AttributeError):
            message = f"the registry answers {self.status}"
        return message[:_MESSAGE_CHARACTERS_MAX]


async def check_registry(image: str, pull_configs: Sequence[bytes]) -> ImageCheck:
    registry = registry_host(image)
    try:
        timeout = aiohttp.ClientTimeout(total=CHECK_TIMEOUT_S)
        async with aiohttp.ClientSession(
            timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            return await _check_manifest(session, image, pull_configs)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, DecodeError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else _error_reason(error)
        return ImageCheck(outcome="unknown", words=f"registry {registry}: {reason}")


async def _check_manifest(
    session: aiohttp.ClientSession, image: str, pull_configs: Sequence[bytes]
) -> ImageCheck:
    url = await _manifest_url(session, image)
    responses = []
    for credentials in [*find_credentials(image, pull_configs), None]:
        response = await _request_manifest(session, url, credentials)
        if response.status == 200:
            digest = response.headers.get("docker-content-digest", "")
            return ImageCheck(outcome="found", digest=digest)
        responses.append(response)
    first = responses[0]  # that of the first pull secret, if there is one
    outcome = _OUTCOMES.get(first.status, "unknown")
    return ImageCheck(outcome=outcome, words=first.error_message)


async def _manifest_url(session: aiohttp.ClientSession, image: str) -> str:
    name, reference = split_reference(image)
    registry = registry_host(image)
    path = name.removeprefix(f"{registry}/")
    if registry == "docker.io":
        path = path if "/" in path else f"library/{path}"
        registry = _DOCKER_HUB_HOST
    scheme = "https"
    if _is_loopback(registry):
        try:
            async with session.get(f"https://{registry}/v2/", allow_redirects=False):
                pass
        except aiohttp.ClientError:
            scheme = "http"
    return f"{scheme}://{registry}/v2/{path}/manifests/{reference}"


async def _request_manifest(
    session: aiohttp.ClientSession, url: str, credentials: JsonObject | None
) -> _RegistryResponse:
    """Request the manifest, and once more as the challenge of the registry demands."""
    response = await _get(session, url)
    challenge = response.headers.get("www-authenticate", "")
    if response.status != 401 or not challenge:
        return response
    basic = _basic_authorization(credentials) if credentials else ""
    if challenge.lower().startswith("basic"):
        return await _get(session, url, basic) if basic else response
    token = await _request_token(session, challenge, basic, url)
    return await _get(session, url, f"Bearer {token}") if token else response


async def _request_token(
    session: aiohttp.ClientSession, challenge: str, basic: str, url: str
) -> str:
    """Return a token of the realm in the challenge; empty if there is none.

    Credentials for a registry on HTTPS are never sent over HTTP.
    """
    fields = dict(_CHALLENGE_FIELD.findall(challenge))
    realm = fields.get("realm", "")
    if not realm.startswith("https://") and not (realm and url.startswith("http://")):
        return ""
    query = {name: fields[name] for name in ("service", "scope") if name in fields}
    headers = {"authorization": basic} if basic else {}
    async with session.get(realm, params=query, headers=headers, allow_redirects=False) as response:
        is_granted = response.status == 200
        found = decode(await response.content.read(_BODY_BYTES_MAX)) if is_granted else {}
    return str(found.get("token") or found.get("access_token") or "")


async def _get(
    session: aiohttp.ClientSession, url: str, authorization: str = ""
) -> _RegistryResponse:
    headers = {"accept": _MANIFEST_TYPES}
    if authorization:
        headers["authorization"] = authorization
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        body = await response.content.read(_BODY_BYTES_MAX)
        found = {name.lower(): value for name, value in response.headers.items()}
        return _RegistryResponse(response.status, found, body)


def _basic_authorization(credentials: JsonObject) -> str:
    pair = f"{credentials['username']}:{credentials['password']}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_loopback(registry: str) -> bool:
    host = registry.rsplit(":", 1)[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _error_reason(error: BaseException) -> str:
    match error:
        case aiohttp.ClientConnectorError(os_error=cause):
            return (cause.strerror or "no connection").lower()
        case _:
            return f"the request failed ({type(error).__name__})"
