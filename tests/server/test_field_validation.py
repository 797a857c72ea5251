"""Unknown and duplicate fields are dropped, reported or rejected, by the fieldValidation mode."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.encoding.request_options import FIELDS_MAX, duplicate_fields
from testkit.api_server.running_server import WORKLOADS, InProcessServer, workload


def with_unknown_fields() -> JsonObject:
    sent = workload(colour="red")
    sent["spec"]["placements"][0]["zone"] = "a"
    sent["extra"] = 1
    return sent


async def test_strict_rejects_and_lists_every_field(server: InProcessServer) -> None:
    status = await server.status("POST", WORKLOADS, with_unknown_fields(), fieldValidation="Strict")
    assert (status["code"], status["reason"]) == (400, "BadRequest")
    assert status["message"] == (
        'Workload in version "v1alpha" cannot be handled as a Workload: strict decoding error: '
        'unknown field "metadata.colour", unknown field "spec.placements[0].zone", '
        'unknown field "extra"'
    )


async def test_an_unknown_field_is_reported_before_the_missing_one(
    server: InProcessServer,
) -> None:
    sent = workload()
    placement = sent["spec"]["placements"][0]
    placement["cityCode"] = placement.pop("cityCodes")
    status = await server.status("POST", WORKLOADS, sent, fieldValidation="Strict")
    assert (status["code"], "cityCode" in status["message"]) == (400, True)
    assert (await server.status("POST", WORKLOADS, sent))["code"] == 422


@pytest.mark.parametrize("query", [{}, {"fieldValidation": "Warn"}])
async def test_warn_is_the_default_and_lists_dropped_fields(
    server: InProcessServer, query: dict[str, Any]
) -> None:
    response = await server.ask("POST", WORKLOADS, with_unknown_fields(), **query)
    assert response.status == 201
    assert response.headers["warning"] == (
        '299 - "unknown field \\"metadata.colour\\"", '
        '299 - "unknown field \\"spec.placements[0].zone\\"", '
        '299 - "unknown field \\"extra\\""'
    )
    assert not {"extra"} & set(decode(response.body))


async def test_ignore_sends_no_warning(server: InProcessServer) -> None:
    response = await server.ask("POST", WORKLOADS, with_unknown_fields(), fieldValidation="Ignore")
    assert (response.status, "warning" in response.headers) == (201, False)


async def test_an_unknown_mode_is_422(server: InProcessServer) -> None:
    status = await server.status("POST", WORKLOADS, workload(), fieldValidation="Loose")
    assert status["code"] == 422


async def test_patches_and_status_are_validated_too(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload())
    patch = {"status": {"colour": "red"}}
    status = await server.patch_refused(f"{WORKLOADS}/web/status", patch, fieldValidation="Strict")
    assert 'unknown field "status.colour"' in status["message"]


async def test_duplicate_keys_are_reported_in_strict_and_warn_mode(
    server: InProcessServer,
) -> None:
    body = encode(workload()).replace(b'"kind":', b'"kind":"Instance","kind":', 1)
    status = await server.status("POST", WORKLOADS, body, fieldValidation="Strict")
    assert 'duplicate field "kind"' in status["message"]
    response = await server.ask("POST", WORKLOADS, body, fieldValidation="Warn")
    assert 'duplicate field \\"kind\\"' in response.headers["warning"]


def test_duplicates_are_found_at_any_depth() -> None:
    body = b'{"a":{"b":1,"b":2},"c":[{"d":1},{"d":1,"d":{"e":1,"e":1}}]}'
    assert list(duplicate_fields(body)) == ["a.b", "c[1].d", "c[1].d.e"]


async def test_field_names_are_escaped_in_the_warning_header(server: InProcessServer) -> None:
    sent = workload()
    sent['x"\r\nset-cookie: a=b\u00e9\\'] = 1
    sent["y" * 5000] = 1
    response = await server.ask("POST", WORKLOADS, sent)
    warning = response.headers["warning"]
    assert response.status == 201
    assert warning.isascii()
    assert warning.isprintable()
    assert len(warning) <= 4096


def test_a_long_key_is_not_copied_for_every_field_below_it() -> None:
    long = "k" * 1_000_000
    fields = ",".join(f'"f{number}":{{}}' for number in range(1000))
    body = f'{{"{long}":{{{fields},"f0":1}}}}'.encode()
    (path,) = duplicate_fields(body)
    assert (path[:3], path[-2:], len(path) < 200) == ("kkk", "f0", True)


def test_the_number_of_reported_duplicates_is_limited() -> None:
    body = ("[" + ",".join(['{"a":1,"a":2}'] * 5000) + "]").encode()
    assert len(list(duplicate_fields(body))) == FIELDS_MAX
