"""The gateway of a plane: the plane itself, or the address in its notice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from datum_compute.api.errors import Forbidden, NotFound, ServiceUnavailable, Unreachable, to_status
from datum_compute.api.gateway import GatewayReason, gateway_not_found
from datum_compute.api.http import Request, Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.cli.connect.gateway import PlaneGateway
from datum_compute.cli.errors import OtherError
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.transport.interface import Transport

LOG = "/gateway/v1alpha/namespaces/default/instances/web/log"
NOTICE = "/api/v1/namespaces/kube-public/configmaps/compute-gateway"
PLANE = Connection(server="https://plane.example", path_prefix="", token="of-eve", context="demo")
URL = "https://gateway.example:9444/apis/of/demo"


@dataclass
class World:
    """A plane and a gateway; ``refusal`` is the response of the plane to unknown paths."""

    notice: JsonObject | None = None
    refusal: Response = field(default_factory=lambda: Response(404, b"404 page not found"))
    asked: list[tuple[str, str]] = field(default_factory=list)
    connections: list[Connection] = field(default_factory=list)
    away: bool = False

    async def send(self, request: Request) -> Response:
        """The plane."""
        self.asked.append(("plane", request.path))
        if request.path == NOTICE and self.notice is not None:
            return Response(200, encode({"metadata": {}, "data": self.notice}))
        return (
            Response(404, encode({"message": "none"})) if request.path == NOTICE else self.refusal
        )

    @asynccontextmanager
    async def open(self, connection: Connection) -> AsyncIterator[Transport]:
        self.connections.append(connection)
        yield Elsewhere(self)

    async def ask(self, times: int = 1) -> JsonObject:
        async with AsyncExitStack() as stack:
            gateway = PlaneGateway(build_client(PLANE, self), PLANE, self.open, stack)
            for _ in range(times):
                found = await gateway.get_raw(LOG)
        return found


@dataclass(frozen=True)
class Elsewhere:
    world: World

    async def send(self, request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer of-eve"
        self.world.asked.append(("gateway", request.path))
        if self.world.away:
            raise Unreachable("cannot reach https://gateway.example:9444.")
        return Response(200, encode({"text": "hello"}))


async def test_a_plane_with_a_gateway_gets_only_the_request() -> None:
    world = World(refusal=Response(200, encode({"text": "here"})))
    assert await world.ask() == {"text": "here"}
    assert world.asked == [("plane", LOG)]


@pytest.mark.parametrize(
    "refusal",
    [
        Response(404, b"404 page not found", "text/plain"),
        Response(403, encode({"message": 'User "eve" cannot get path "/gateway/x"'})),
    ],
)
async def test_a_plane_without_a_gateway_names_one_that_is_cached(
    refusal: Response,
) -> None:
    world = World({"url": URL, "ca.crt": "PEM"}, refusal)
    assert await world.ask(times=2) == {"text": "hello"}
    there = ("gateway", f"/apis/of/demo{LOG}")
    assert world.asked == [("plane", LOG), ("plane", NOTICE), there, there]
    (connection,) = world.connections
    assert (connection.server, connection.ca_pem) == ("https://gateway.example:9444", b"PEM")


async def test_without_a_notice_the_response_of_the_plane_is_returned() -> None:
    with pytest.raises(NotFound, match="page not found"):
        await World().ask()


async def test_an_error_of_the_gateway_causes_no_lookup() -> None:
    for error in (
        Forbidden("eve cannot get it", name="web", kind="instances"),
        NotFound("there is no such plane", kind="planes"),
        gateway_not_found(GatewayReason.INSTANCES_SIMULATED),
    ):
        world = World({"url": URL}, Response(error.code, encode(to_status(error))))
        with pytest.raises(type(error)):
            await world.ask()
        assert world.asked == [("plane", LOG)]


@pytest.mark.parametrize("url", ["", "http://gateway.example", "gateway.example"])
async def test_tokens_are_sent_only_over_tls(url: str) -> None:
    with pytest.raises(OtherError, match="contains no https address"):
        await World({"url": url}).ask()


async def test_an_unreachable_gateway_is_not_reported_as_an_unreachable_plane() -> None:
    world = World(notice={"url": URL}, away=True)
    with pytest.raises(ServiceUnavailable, match=r"cannot reach.*kube-public/compute-gateway"):
        await world.ask()
