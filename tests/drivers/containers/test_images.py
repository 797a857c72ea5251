"""Names, digests and credentials of images, and errors of pulls."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from datum_compute.api.conditions import Reason
from datum_compute.drivers.containers.engine import Engine, EngineError
from datum_compute.drivers.containers.images import (
    ImageStore,
    ImageUnavailable,
    default_pull_policy,
    find_credentials,
    parse_image,
    registry_host,
    split_reference,
)
from datum_compute.drivers.engine_errors import is_registry_unreachable
from datum_compute.planning.explain.advice import Actor, advice_on

UNREACHABLE = (
    "pinging container registry reg.example: dial tcp: lookup reg.example: no such host",
    "dial tcp 10.0.0.1:443: connect: connection refused",
    "dial tcp 10.0.0.1:443: i/o timeout",
    "net/http: TLS handshake timeout",
    "net/http: request canceled while waiting for connection (Client.Timeout exceeded)",
    "connect: network is unreachable",
)
REFUSED = (
    "manifest unknown: manifest unknown",
    "reading manifest 9 in reg.example/web: name unknown",
    "unauthorized: authentication required",
    "denied: requested access to the resource is denied",
    "toomanyrequests: You have reached your pull rate limit",
)


class FailingPullEngine:
    """Has no image, and every pull fails with this message."""

    def __init__(self, message: str) -> None:
        self.message = message

    async def request(self, _method: str, _path: str) -> Any:
        raise EngineError(404, "no such image")

    @asynccontextmanager
    async def stream(
        self, *_: object, **__: object
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        async def lines() -> AsyncGenerator[bytes, None]:
            yield json.dumps({"error": self.message}).encode() + b"\n"

        yield lines()


async def failed_pull(message: str) -> ImageUnavailable:
    images = ImageStore(cast(Engine, FailingPullEngine(message)))
    with pytest.raises(ImageUnavailable) as refused:
        await images.ensure("reg.example/web:9", "", ())
    return refused.value


@pytest.mark.parametrize("message", UNREACHABLE)
async def test_an_unreachable_registry_is_not_blamed_on_the_image(message: str) -> None:
    error = await failed_pull(message)
    assert is_registry_unreachable(message)
    assert error.reason == Reason.REGISTRY_UNREACHABLE
    assert str(error) == f"image reg.example/web:9: cannot reach reg.example: {message}"
    advice = advice_on(error.reason)
    assert advice.actor is Actor.PLATFORM
    assert "--image" not in advice.command


@pytest.mark.parametrize("message", REFUSED)
async def test_an_error_of_the_registry_is_a_problem_of_the_image(message: str) -> None:
    error = await failed_pull(message)
    assert error.reason == Reason.IMAGE_UNAVAILABLE
    assert advice_on(error.reason).actor is Actor.USER


@pytest.mark.parametrize(
    ("image", "name", "tag", "policy", "registry"),
    [
        ("web", "web", "latest", "Always", "docker.io"),
        ("web:1", "web", "1", "IfNotPresent", "docker.io"),
        ("team/web:latest", "team/web", "latest", "Always", "docker.io"),
        ("host:5000/web", "host:5000/web", "latest", "Always", "host:5000"),
        ("host:5000/a/web:2", "host:5000/a/web", "2", "IfNotPresent", "host:5000"),
        ("localhost/web:1", "localhost/web", "1", "IfNotPresent", "localhost"),
        ("r.io/web:1@sha256:ab", "r.io/web", "sha256:ab", "IfNotPresent", "r.io"),
    ],
)
def test_image_names_are_parsed(
    image: str, name: str, tag: str, policy: str, registry: str
) -> None:
    assert split_reference(image) == (name, tag)
    assert default_pull_policy(image) == policy
    assert registry_host(image) == registry


def test_credentials_of_the_registry_are_found_in_the_order_of_the_secrets() -> None:
    first = json.dumps({"auths": {"r.io": {"username": "a", "password": "b"}, "x": {}}}).encode()
    encoded = base64.b64encode(b"c:d:e").decode()
    second = json.dumps({"auths": {"https://r.io/v1/": {"auth": encoded}}}).encode()
    found = list(find_credentials("r.io/web:1", [b"no json", first, second]))
    assert [(f["username"], f["password"]) for f in found] == [("a", "b"), ("c", "d:e")]
    assert list(find_credentials("other.io/web:1", [first, second])) == []


def test_the_digest_is_that_of_the_repository_in_the_name() -> None:
    found = {"Id": "sha256:id", "RepoDigests": ["x/web@sha256:1", "r.io/web@sha256:2"]}
    assert parse_image("r.io/web:1", found).digest == "sha256:2"
    assert parse_image("local:1", {"Id": "sha256:id"}).digest == "sha256:id"


class SlowImageStore(ImageStore):
    """An image store without images whose pulls take a few turns of the loop."""

    def __init__(self) -> None:
        super().__init__(cast("Engine", None))
        self.running = 0
        self.running_max = 0

    async def find(self, image: str) -> None:
        return None

    async def _pull_with_credentials(self, image: str, pull_configs: Any) -> Any:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        for _ in range(3):
            await asyncio.sleep(0)
        self.running -= 1
        return image


async def test_pulls_of_one_image_never_run_at_the_same_time() -> None:
    """A request that follows a finished one does not overtake a request that waits."""
    store = SlowImageStore()

    async def ensure_twice() -> None:
        await store.ensure("web:1", "IfNotPresent", [])
        await store.ensure("web:1", "IfNotPresent", [])

    await asyncio.gather(ensure_twice(), ensure_twice())
    assert store.running_max == 1
