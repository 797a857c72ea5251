"""Images of an engine: pulls them with the credentials of pull secrets, and reads their digest.

The error of a registry is shown to users as the registry wrote it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from datum_compute.api.conditions import Reason
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, encode
from datum_compute.drivers.containers.engine import Engine, EngineError, parse_json_lines
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.engine_errors import is_registry_unreachable
from datum_compute.drivers.keyed_locks import KeyedLocks

PULL_TIMEOUT_S = 1800.0
PULL_IDLE_TIMEOUT_S = 120.0  # without any progress
_AUTH_HEADER = "X-Registry-Auth"
_DOCKER_HUB_HOSTS = ("docker.io", "index.docker.io", "registry-1.docker.io")


class ImageUnavailable(DriverError):
    """The image cannot be pulled; the message contains its name and the reason."""

    reason = Reason.IMAGE_UNAVAILABLE


class RegistryUnreachable(ImageUnavailable):
    """The registry does not respond. The image may exist."""

    reason = Reason.REGISTRY_UNREACHABLE


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image that the engine has."""

    id: str
    digest: str
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()


class ImageStore:
    """Pulls images. Concurrent requests for one image wait for each other."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._locks = KeyedLocks()

    async def ensure(self, image: str, policy: str, pull_configs: Sequence[bytes]) -> ImageInfo:
        policy = policy or default_pull_policy(image)
        async with self._locks.hold(image):
            found = None if policy == "Always" else await self.find(image)
            if found is None and policy == "Never":
                reason = "the host does not have it and imagePullPolicy is Never"
                raise ImageUnavailable(f"image {image}: {reason}")
            return found or await self._pull_with_credentials(image, pull_configs)

    async def find(self, image: str) -> ImageInfo | None:
        try:
            found = await self._engine.request("GET", f"/images/{image}/json")
        except EngineError as error:
            if error.status == 404:
                return None
            raise TransientError(f"image {image}: {error.message}") from error
        return parse_image(image, found)

    async def _pull_with_credentials(self, image: str, pull_configs: Sequence[bytes]) -> ImageInfo:
        """Try all credentials for the registry, then none, until a pull succeeds."""
        problems: list[str] = []
        for credentials in [*find_credentials(image, pull_configs), None]:
            problem = await self._pull(image, credentials)
            found = None if problem else await self.find(image)
            if found is not None:
                return found
            problems.append(problem or "the engine does not have the image after the pull")
        if all(is_registry_unreachable(problem) for problem in problems):
            registry = registry_host(image)
            raise RegistryUnreachable(f"image {image}: cannot reach {registry}: {problems[0]}")
        raise ImageUnavailable(f"image {image}: {problems[0]}")

    async def _pull(self, image: str, credentials: JsonObject | None) -> str:
        """Return the error of the pull; empty if it succeeded."""
        name, tag = split_reference(image)
        headers = {}
        if credentials is not None:
            headers[_AUTH_HEADER] = base64.urlsafe_b64encode(encode(credentials)).decode()
        query = {"fromImage": name, "tag": tag}
        problem = ""
        try:
            async with (
                asyncio.timeout(PULL_TIMEOUT_S),
                self._engine.stream(
                    "POST", "/images/create", query, headers, idle_timeout_s=PULL_IDLE_TIMEOUT_S
                ) as chunks,
            ):
                async for line in parse_json_lines(chunks):
                    problem = str(line.get("error") or "") or problem
        except EngineError as error:
            return error.message
        except TimeoutError:
            return f"not pulled within {PULL_TIMEOUT_S:.0f} s"
        return problem.strip()


def default_pull_policy(image: str) -> str:
    _, tag = split_reference(image)
    return "Always" if tag == "latest" else "IfNotPresent"


def split_reference(image: str) -> tuple[str, str]:
    """Return the name, and the tag or digest."""
    name, _, digest = image.partition("@")
    if digest:
        return _without_tag(name)[0], digest
    name, tag = _without_tag(image)
    return name, tag or "latest"


def _without_tag(image: str) -> tuple[str, str]:
    head, slash, last = image.rpartition("/")
    last, _, tag = last.partition(":")
    return f"{head}{slash}{last}", tag


def registry_host(image: str) -> str:
    """Return the host of the registry as it is written in image names."""
    first, slash, _ = image.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    return first if is_host else "docker.io"


def find_credentials(image: str, pull_configs: Sequence[bytes]) -> Iterator[JsonObject]:
    """Yield the credentials for the registry of the image, in the order of the secrets."""
    registry = registry_host(image)
    hosts = _DOCKER_HUB_HOSTS if registry in _DOCKER_HUB_HOSTS else (registry,)
    for config in pull_configs:
        try:
            auths = decode(config).get("auths", {})
        except (DecodeError, AttributeError):
            continue  # admission rejects such secrets
        for key, entry in auths.items() if isinstance(auths, dict) else ():
            host = key.removeprefix("https://").removeprefix("http://").partition("/")[0]
            if host in hosts and isinstance(entry, dict) and (found := _parse_credentials(entry)):
                yield {**found, "serveraddress": registry}


def _parse_credentials(entry: JsonObject) -> JsonObject | None:
    user, password = entry.get("username"), entry.get("password")
    if not user and entry.get("auth"):
        try:
            user, _, password = base64.b64decode(str(entry["auth"])).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
    return {"username": str(user), "password": str(password or "")} if user else None


def parse_image(image: str, found: JsonObject) -> ImageInfo:
    config = found.get("Config") or {}
    return ImageInfo(
        id=str(found["Id"]),
        digest=_digest(image, found),
        entrypoint=tuple(config.get("Entrypoint") or ()),
        command=tuple(config.get("Cmd") or ()),
    )


def _digest(image: str, found: JsonObject) -> str:
    """Return the digest in the repository of the image; the id if it comes from no registry."""
    requested = image.partition("@")[2]
    name, _ = split_reference(image)
    digests = [str(d).partition("@") for d in found.get("RepoDigests") or ()]
    own = [digest for repository, _, digest in digests if repository == name]
    others = [digest for _, _, digest in digests]
    return requested or next(iter([*own, *others]), str(found["Id"]))
