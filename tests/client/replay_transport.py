"""A transport that replays prepared responses and records requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import encode
from datum_compute.client.client import Client
from testkit.sim.loop import VirtualLoop, run_virtual

R = TypeVar("R")

ResponseOrError = Response | Unreachable


class ReplayTransport:
    """Returns or raises the responses in order. Requests after the last one get no response."""

    def __init__(self, *responses: ResponseOrError) -> None:
        self.responses = list(responses)
        self.requests: list[Request] = []
        self.sent_at_s: list[float] = []

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        self.sent_at_s.append(asyncio.get_running_loop().time())
        if not self.responses:
            await asyncio.Event().wait()
        response = self.responses.pop(0)
        if isinstance(response, Unreachable):
            raise response
        return response

    def client(self) -> Client:
        return Client(self, prefix="/planes/hub", token="token", agent="test")

    @property
    def watched_since(self) -> list[str]:
        """The resource version of each watch request, and "list" for each list request."""
        return [
            r.query.get("resourceVersion", "") if r.query.get("watch") else "list"
            for r in self.requests
        ]


def unreachable(why: str = "no answer") -> Unreachable:
    return Unreachable(why)


def json_response(body: Any, status: int = 200, **headers: str) -> Response:
    return Response(status, encode(body), headers=headers)


def status(code: int, reason: str = "", message: str = "no", **headers: str) -> Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return json_response(body, code, **{k.replace("_", "-"): v for k, v in headers.items()})


def namespace(name: str, version: int, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), **metadata}}


def list_response(version: int, *items: Any, **metadata: Any) -> Response:
    return json_response(
        {"items": list(items), "metadata": {"resourceVersion": str(version), **metadata}}
    )


def event(kind: str, obj: Any) -> bytes:
    return encode({"type": kind, "object": obj}) + b"\n"


def stream(*lines: bytes, then: str = "ends", lives_s: float = 10.0) -> Response:
    """A watch that sends these lines, and after ``lives_s`` ends, breaks or becomes silent."""

    async def chunks() -> AsyncGenerator[bytes, None]:
        for line in lines:
            yield line
        if then == "is silent":
            await asyncio.Event().wait()
        await asyncio.sleep(lives_s)
        if then == "breaks":
            raise Unreachable("the connection was lost")

    return Response(200, stream=chunks())


def in_virtual_time(test: Callable[[], Coroutine[Any, Any, R]]) -> R:
    async def main(_loop: VirtualLoop) -> R:
        return await test()

    return run_virtual(Random(1), main)
