"""A registry that does not answer is told apart from one that has no such image."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from datum_compute.api.reasons import Reason
from datum_compute.drivers.containers.engine import Engine, EngineError
from datum_compute.drivers.containers.images import ImageStore, ImageUnavailable
from datum_compute.drivers.registry_errors import is_registry_unreachable
from datum_compute.planning.explain.advice import Actor, advice_on

SILENT = (
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


class EngineThatSays:
    """Has no image, and says this to whoever wants one pulled."""

    def __init__(self, words: str) -> None:
        self.words = words

    async def request(self, _method: str, _path: str) -> Any:
        raise EngineError(404, "no such image")

    @asynccontextmanager
    async def stream(
        self, *_: object, **__: object
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        async def lines() -> AsyncGenerator[bytes, None]:
            yield json.dumps({"error": self.words}).encode() + b"\n"

        yield lines()


async def refusal(words: str) -> ImageUnavailable:
    images = ImageStore(cast(Engine, EngineThatSays(words)))
    with pytest.raises(ImageUnavailable) as refused:
        await images.ensure("reg.example/web:9", "", ())
    return refused.value


@pytest.mark.parametrize("words", SILENT)
async def test_silence_is_not_blamed_on_the_image(words: str) -> None:
    error = await refusal(words)
    assert is_registry_unreachable(words)
    assert error.reason == Reason.REGISTRY_UNREACHABLE
    assert str(error) == f"image reg.example/web:9: reg.example does not answer: {words}"
    advice = advice_on(error.reason)
    assert advice.actor is Actor.PLATFORM
    assert "--image" not in advice.command


@pytest.mark.parametrize("words", REFUSED)
async def test_what_a_registry_refuses_is_the_images_fault(words: str) -> None:
    error = await refusal(words)
    assert error.reason == Reason.IMAGE_UNAVAILABLE
    assert advice_on(error.reason).actor is Actor.USER
