"""Large lists are sent in pieces of stored bytes."""

from __future__ import annotations

import pytest

from datum_compute.api.http import Request
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.encoding.list_body import (
    PIECE_BYTES,
    WHOLE_BYTES_MAX,
    ListBody,
    list_body,
)
from testkit.api_server.running_server import TOKEN, InProcessServer

TYPES = b'{"apiVersion":"v1","kind":"ConfigMap",'
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def objects(count: int, size_bytes: int) -> list[bytes]:
    return [b'{"name":"o%d","data":"%s"}' % (n, b"x" * size_bytes) for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize("omitted_prefix", [b"", TYPES])
def test_a_small_list_is_one_body(count: int, omitted_prefix: bytes) -> None:
    items = objects(count, 10)
    stored = [omitted_prefix + item[1:] for item in items] if omitted_prefix else items
    body = list_body({"kind": "List"}, stored, omitted_prefix)
    assert isinstance(body, bytes)
    assert decode(body) == {"kind": "List", "items": [decode(item) for item in items]}


@pytest.mark.parametrize("omitted_prefix", [b"", TYPES])
@pytest.mark.parametrize("size_bytes", [100, 3000, 200_000])
def test_a_large_list_is_built_piece_by_piece(size_bytes: int, omitted_prefix: bytes) -> None:
    items = objects(2 * WHOLE_BYTES_MAX // size_bytes + 2, size_bytes)
    stored = [omitted_prefix + item[1:] for item in items] if omitted_prefix else items
    body = list_body({"kind": "List"}, stored, omitted_prefix)
    assert isinstance(body, ListBody)
    pieces = list(body)
    whole = b"".join(pieces)
    assert len(whole) == body.size_bytes
    assert decode(whole) == {"kind": "List", "items": [decode(item) for item in items]}
    assert len(pieces) > 1
    assert max(map(len, pieces)) <= PIECE_BYTES + min(size_bytes, PIECE_BYTES) + 200
    assert body.items is stored  # nothing is copied before it is sent


def config_map(number: int) -> JsonObject:
    data = {"text": "x" * 20_000}
    metadata = {"name": f"c{number:02}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


class _Connection:
    def identify(self, user: str, *, reserved: bool) -> None:
        assert user == "root"


async def test_items_of_large_and_small_lists_are_equal(server: InProcessServer) -> None:
    for number in range(20):
        await server.json("POST", CONFIG_MAPS, config_map(number))
    headers = {"authorization": f"Bearer {TOKEN}"}
    response = await server.api.dispatch(
        Request("GET", CONFIG_MAPS, headers=headers, peer=_Connection())
    )
    assert response.pieces is not None
    assert response.body == b""
    whole = decode(b"".join(response.pieces))
    assert await server.json("GET", CONFIG_MAPS) == whole  # inside of the process, as a whole
    found: list[JsonObject] = []
    for name in (f"c{number:02}" for number in range(20)):
        page = await server.json("GET", CONFIG_MAPS, fieldSelector=f"metadata.name={name}")
        found += page["items"]
    assert whole["items"] == found
    assert "kind" not in found[0]
    single = await server.json("GET", f"{CONFIG_MAPS}/c00")
    assert {"apiVersion": "v1", "kind": "ConfigMap", **found[0]} == single
    assert encode(single).startswith(TYPES)
