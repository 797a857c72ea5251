"""The OpenAPI v2 document is empty, so that old clients leave validation to the server."""

from __future__ import annotations

import pytest

from datum_compute.api.meta.codec import decode
from testkit.api_server.running_server import PROJECT, InProcessServer

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.parametrize("prefix", ["", PROJECT])
async def test_the_document_is_json_without_kinds(server: InProcessServer, prefix: str) -> None:
    answer = await server.ask("GET", f"{prefix}/openapi/v2")
    assert (answer.status, answer.content_type) == (200, "application/json")
    document = decode(answer.body)
    assert (document["swagger"], document["paths"]) == ("2.0", {})


async def test_the_document_is_served_as_protobuf_on_request(server: InProcessServer) -> None:
    answer = await server.ask("GET", "/openapi/v2", headers={"accept": PROTOBUF})
    assert (answer.status, answer.content_type) == (200, PROTOBUF.replace("@", "."))
    assert answer.body.startswith(b"\x0a\x032.0\x12"), "swagger, then info"
    assert answer.body[6] == len(answer.body) - 7, "info is the rest"


async def test_other_media_types_are_not_acceptable(server: InProcessServer) -> None:
    answer = await server.ask("GET", "/openapi/v2", headers={"accept": "text/html"})
    assert answer.status == 406
