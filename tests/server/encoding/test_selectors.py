"""Limits of selectors, and how often they decode an object."""

from __future__ import annotations

import pytest

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.label_selector import (
    SELECTOR_LENGTH_MAX,
    TERMS_MAX,
    VALUES_MAX,
    parse_label_selector,
)
from datum_compute.server.discovery.resources import StorageConversion
from datum_compute.store.records import Record
from testkit.api_server.running_server import InProcessServer

SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.mark.parametrize(
    "selector",
    [
        ",".join(f"k{number}" for number in range(TERMS_MAX + 1)),
        f"a in ({','.join(f'v{number}' for number in range(VALUES_MAX + 1))})",
        "a" * (SELECTOR_LENGTH_MAX + 1),
    ],
    ids=["terms", "values", "length"],
)
def test_label_selectors_above_a_limit_are_rejected(selector: str) -> None:
    with pytest.raises(BadRequest, match="labelSelector: must have at most"):
        parse_label_selector(selector)


def test_equal_requirements_count_once() -> None:
    assert len(parse_label_selector(",".join(["a=b"] * 1000))) == 1


def test_watches_with_the_same_selector_share_its_requirements() -> None:
    assert parse_label_selector("a=b,c") is parse_label_selector("a=b,c")


def test_an_operator_needs_a_space_before_it() -> None:
    with pytest.raises(BadRequest, match="unable to parse"):
        parse_label_selector("ain(b)")


async def test_a_field_selector_decodes_each_object_once(
    server: InProcessServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        await server.json("POST", SECRETS, secret)
    decoded: list[str] = []
    decode = StorageConversion.decode_served

    def decode_and_count(conversion: StorageConversion, record: Record) -> JsonObject:
        decoded.append(record.key.name)
        return decode(conversion, record)

    monkeypatch.setattr(StorageConversion, "decode_served", decode_and_count)
    selector = ",".join(f"type!=t{number}" for number in range(TERMS_MAX))
    listed = await server.json("GET", SECRETS, fieldSelector=selector)
    assert len(listed["items"]) == 2
    assert decoded == ["a", "b"]


async def test_too_many_terms_of_a_field_selector_are_rejected(server: InProcessServer) -> None:
    selector = ",".join(f"type!=t{number}" for number in range(TERMS_MAX + 1))
    status = await server.status("GET", SECRETS, fieldSelector=selector)
    assert status["code"] == 400
    assert "fieldSelector: must have at most 100 different terms" in status["message"]
