"""Protobuf bodies. The Go types of Kubernetes wrote the golden files, with the equivalent JSON."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.api.errors import BadRequest, UnsupportedMediaType
from datum_compute.api.http import PROTOBUF
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.server.encoding.protobuf_kinds import KINDS, MAGIC, decode_protobuf
from testkit.api_server.running_server import WORKLOADS, InProcessServer

GOLDEN = Path(__file__).parent.parent / "golden" / "protobuf"
FILES = sorted(path.stem for path in GOLDEN.glob("*.json"))
NAMESPACES = "/api/v1/namespaces"
HEADERS = {"content-type": PROTOBUF}


def golden(name: str, variant: str) -> tuple[bytes, JsonObject]:
    found = json.loads((GOLDEN / f"{name}.json").read_text())[variant]
    return base64.b64decode(found["protobuf"]), found["json"]


def drop_empty(value: Any) -> Any:
    """Return the JSON without nulls and empty fields, which Go encodes as well."""
    if isinstance(value, dict):
        inner = {name: drop_empty(item) for name, item in value.items()}
        return {name: item for name, item in inner.items() if item not in (None, {})}
    return [drop_empty(item) for item in value] if isinstance(value, list) else value


def is_review(name: str) -> bool:
    return "review" in name or name == "tokenrequest"


def test_every_kind_has_a_golden_file() -> None:
    assert len(FILES) == len(KINDS) + 1  # and the delete options


@pytest.mark.parametrize("name", FILES)
def test_every_field_of_a_full_object_is_decoded(name: str) -> None:
    body, expected = golden(name, "full")
    if is_review(name):
        expected.pop("status", None)  # fields of the server
    assert drop_empty(decode_protobuf(body)) == drop_empty(expected)


@pytest.mark.parametrize("name", FILES)
def test_empty_fields_are_decoded_as_in_json(name: str) -> None:
    body, expected = golden(name, "zeros")
    for path, value in list_leaves(decode_protobuf(body)):
        assert value == value_at(expected, path) or (
            not value and value_at(expected, path) is None
        ), path


def test_pointers_to_empty_values_are_kept() -> None:
    assert decode_protobuf(golden("configmap", "zeros")[0])["immutable"] is False
    lease = decode_protobuf(golden("lease", "zeros")[0])["spec"]
    assert (lease["holderIdentity"], lease["leaseDurationSeconds"]) == ("", 0)
    options = decode_protobuf(golden("deleteoptions", "zeros")[0])
    assert (options["gracePeriodSeconds"], options["orphanDependents"]) == (0, False)


def list_leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    if isinstance(value, dict):
        return [leaf for name, item in value.items() for leaf in list_leaves(item, (*path, name))]
    return [(path, value)]


def value_at(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name, {}) if isinstance(value, dict) else None
    return value


@pytest.mark.parametrize("name", FILES)
def test_an_empty_object_has_only_its_kind(name: str) -> None:
    body, expected = golden(name, "empty")
    found = decode_protobuf(body)
    assert found == {"apiVersion": expected["apiVersion"], "kind": expected["kind"]}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FILES), st.integers(0, 5000), st.binary(max_size=6))
def test_damaged_bytes_are_rejected_or_decoded(name: str, place: int, damage: bytes) -> None:
    body, _ = golden(name, "full")
    place %= len(body)
    assert check_decoded_or_rejected(body[:place] + damage + body[place + len(damage) :])
    assert check_decoded_or_rejected(body[:place])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_rejected_or_decoded(body: bytes) -> None:
    assert check_decoded_or_rejected(body)
    assert check_decoded_or_rejected(MAGIC + body)


def check_decoded_or_rejected(body: bytes) -> bool:
    """Check that the body is decoded to a JSON object or rejected."""
    try:
        return bool(encode(decode_protobuf(body)))
    except (BadRequest, UnsupportedMediaType):
        return True


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s",
        b"{}",
        MAGIC + b"\x0a\xff",
        MAGIC + b"\xff" * 11,
        MAGIC + b"\x0b",
        MAGIC + b"\x00",
    ],
)
async def test_malformed_protobuf_is_400(server: InProcessServer, body: bytes) -> None:
    assert (await server.status("POST", NAMESPACES, body, headers=HEADERS))["code"] == 400


async def test_a_namespace_is_created_from_protobuf(server: InProcessServer) -> None:
    body, _ = golden("namespace", "empty")  # has no name
    assert (await server.status("POST", NAMESPACES, body, headers=HEADERS))["code"] == 422
    created = await server.json(
        "POST", NAMESPACES, namespace_message(b"made-by-go"), headers=HEADERS
    )
    assert created["metadata"]["name"] == "made-by-go"
    assert created["metadata"]["labels"]["kubernetes.io/metadata.name"] == "made-by-go"


async def test_delete_options_can_be_protobuf(server: InProcessServer) -> None:
    await server.json("POST", NAMESPACES, namespace_message(b"gone"), headers=HEADERS)
    policy = field(4, b"Background")
    body = MAGIC + field(1, field(1, b"v1") + field(2, b"DeleteOptions")) + field(2, policy)
    deleted = await server.json("DELETE", f"{NAMESPACES}/gone", body, headers=HEADERS)
    assert deleted["status"]["phase"] == "Terminating"


async def test_our_own_kinds_as_protobuf_are_415(server: InProcessServer) -> None:
    kind = field(1, b"compute.datumapis.com/v1alpha") + field(2, b"Workload")
    body = MAGIC + field(1, kind) + field(2, b"")
    status = await server.status("POST", WORKLOADS, body, headers=HEADERS)
    assert (status["code"], status["reason"]) == (415, "UnsupportedMediaType")
    assert "Workload" in status["message"]
    assert "application/json" in status["message"]


async def test_a_kind_that_does_not_match_the_path_is_400(server: InProcessServer) -> None:
    body, _ = golden("configmap", "full")
    assert (await server.status("POST", NAMESPACES, body, headers=HEADERS))["code"] == 400


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def namespace_message(name: bytes) -> bytes:
    kind = field(1, field(1, b"v1") + field(2, b"Namespace"))
    return MAGIC + kind + field(2, field(1, field(1, name)))
