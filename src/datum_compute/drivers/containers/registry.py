"""Asks a registry whether it has an image and would give it away, without pulling it.

The registry API of OCI, as engines speak it: a question without credentials or with those of a pull
secret, a token if the registry wants one, and its own words if it refuses. Loopback registries are
asked over http too, as engines do; others over https only. Redirects are not followed. What is not
understood is no verdict: only a pull is the truth.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import aiohttp

from datum_compute.api.codec import DecodeError, JsonObject, decode
from datum_compute.drivers.containers.images import find_credentials, registry_host, split_reference
from datum_compute.drivers.queries import ImageCheck, ImageOutcome

PATIENCE_S = 8.0
_BODY_MAX = 64 * 1024
_WORDS_MAX = 300
_HUB_HOST = "registry-1.docker.io"
_ACCEPTED = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
_FIELD = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class _RegistryResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def words(self) -> str:
        try:
            error = decode(self.body)["errors"][0]
            said = str(error.get("message") or error.get("code"))
        except (DecodeError, LookupError, TypeError, AttributeError):
            said = f"the registry answers {self.status}"
        return said[:_WORDS_MAX]


async def check_registry(image: str, pull_configs: Sequence[bytes]) -> ImageCheck:
    registry = registry_host(image)
    try:
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        async with aiohttp.ClientSession(
            timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            return await _verdict(session, image, pull_configs)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, DecodeError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else _silence(error)
        return ImageCheck(outcome="unknown", words=f"registry {registry}: {why}")


async def _verdict(
    session: aiohttp.ClientSession, image: str, pull_configs: Sequence[bytes]
) -> ImageCheck:
    url = await _manifest_url(session, image)
    answers = []
    for login in [*find_credentials(image, pull_configs), None]:
        answer = await _asked(session, url, login)
        if answer.status == 200:
            digest = answer.headers.get("docker-content-digest", "")
            return ImageCheck(outcome="found", digest=digest)
        answers.append(answer)
    first = answers[0]  # with the best credentials there are
    outcomes: dict[int, ImageOutcome] = {404: "missing", 401: "denied", 403: "denied"}
    return ImageCheck(outcome=outcomes.get(first.status, "unknown"), words=first.words)


async def _manifest_url(session: aiohttp.ClientSession, image: str) -> str:
    name, reference = split_reference(image)
    registry = registry_host(image)
    path = name.removeprefix(f"{registry}/")
    if registry == "docker.io":
        path = path if "/" in path else f"library/{path}"
        registry = _HUB_HOST
    scheme = "https"
    if _is_loopback(registry):
        try:
            async with session.get(f"https://{registry}/v2/", allow_redirects=False):
                pass
        except aiohttp.ClientError:
            scheme = "http"
    return f"{scheme}://{registry}/v2/{path}/manifests/{reference}"


async def _asked(
    session: aiohttp.ClientSession, url: str, login: JsonObject | None
) -> _RegistryResponse:
    """Again with what the registry wants to see, if it says so."""
    answer = await _get(session, url)
    wanted = answer.headers.get("www-authenticate", "")
    if answer.status != 401 or not wanted:
        return answer
    shown = _basic(login) if login else ""
    if wanted.lower().startswith("basic"):
        return await _get(session, url, shown) if shown else answer
    token = await _token(session, wanted, shown, url)
    return await _get(session, url, f"Bearer {token}") if token else answer


async def _token(session: aiohttp.ClientSession, wanted: str, shown: str, url: str) -> str:
    """Of the place that the registry names; never over http for a registry on https."""
    fields = dict(_FIELD.findall(wanted))
    realm = fields.get("realm", "")
    if not realm.startswith("https://") and not (realm and url.startswith("http://")):
        return ""
    query = {name: fields[name] for name in ("service", "scope") if name in fields}
    headers = {"authorization": shown} if shown else {}
    async with session.get(realm, params=query, headers=headers, allow_redirects=False) as answer:
        found = decode(await answer.content.read(_BODY_MAX)) if answer.status == 200 else {}
    return str(found.get("token") or found.get("access_token") or "")


async def _get(session: aiohttp.ClientSession, url: str, shown: str = "") -> _RegistryResponse:
    headers = {"accept": _ACCEPTED, **({"authorization": shown} if shown else {})}
    async with session.get(url, headers=headers, allow_redirects=False) as answer:
        body = await answer.content.read(_BODY_MAX)
        found = {name.lower(): value for name, value in answer.headers.items()}
        return _RegistryResponse(answer.status, found, body)


def _basic(login: JsonObject) -> str:
    pair = f"{login['username']}:{login['password']}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


def _is_loopback(registry: str) -> bool:
    host = registry.rsplit(":", 1)[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _silence(error: BaseException) -> str:
    match error:
        case aiohttp.ClientConnectorError(os_error=cause):
            return (cause.strerror or "no connection").lower()
        case _:
            return f"the question failed ({type(error).__name__})"
