"""Limits of JSON bodies, and YAML bodies, which have the meaning of JSON."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from datum_compute.api.errors import BadRequest, RequestEntityTooLarge
from datum_compute.api.http import YAML
from datum_compute.api.meta.codec import decode, encode
from datum_compute.server.encoding.body import (
    VALUES_MAX,
    YAML_BYTES_MAX,
    YAML_VALUES_MAX,
    check_value_count,
    decode_json,
    decode_yaml,
)
from testkit.api_server.running_server import WORKLOADS, InProcessServer, workload

HEADERS = {"content-type": YAML}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", {"a": 1}),
        ("a: -1.5", {"a": -1.5}),
        ("a: 1e3", {"a": 1000.0}),
        ("a: yes", {"a": True}),
        ("a: 'yes'", {"a": "yes"}),
        ("a: ~", {"a": None}),
        ("a:", {"a": None}),
        ("a: 2024-01-01", {"a": "2024-01-01"}),
        ("a: 12:30:45", {"a": "12:30:45"}),
        ("a: 1.2.3", {"a": "1.2.3"}),
        ("1: a\ntrue: b", {"1": "a", "true": "b"}),
        ("- a\n- [b, {c: d}]", ["a", ["b", {"c": "d"}]]),
        ("a: |\n  text\n  more\n", {"a": "text\nmore\n"}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("", None),
    ],
)
def test_scalars_and_containers_are_parsed(text: str, expected: Any) -> None:
    assert decode_yaml(text.encode()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x",
        "a: *x",
        "a: !!python/object:os.system x",
        "a: !!binary aGk=",
        "a: !custom x",
        "<<: {a: 1}",
        "a: 1\na: 2",
        "? {a: 1}\n: 2",
        "a: 1\n---\nb: 2",
        "a: .inf",
        "a: .nan",
        "a: 0x10",
        "a: 0777",
        "a: 1e999",
        "a: 99999999999999999999999999",
        'a: "\\ud800"',
        "a: [",
        "\tb: 1",
        "a: b: c",
        "[" * 70 + "]" * 70,
    ],
)
def test_values_that_json_does_not_have_are_rejected(text: str) -> None:
    with pytest.raises(BadRequest):
        decode_yaml(text.encode())


def test_aliases_that_expand_too_much_are_rejected() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    with pytest.raises(BadRequest, match="aliases"):
        decode_yaml("\n".join(lines).encode())


def test_a_number_beyond_64_bits_is_parsed_as_in_json() -> None:
    text = str(-(2**63) - 1)
    assert decode_yaml(f"a: {text}".encode()) == decode(f'{{"a": {text}}}'.encode())


def test_a_long_document_is_rejected() -> None:
    with pytest.raises(RequestEntityTooLarge, match="send JSON"):
        decode_yaml(b"a: " + b"x" * YAML_BYTES_MAX)


@pytest.mark.parametrize(
    "body",
    [
        b"a: [" + b"1," * 500_000 + b"1]",
        b"a:\n" + b"- 1\n" * 200_000,
        b"[" + b"[]," * 300_000 + b"]",
        b"[" + b"{a}," * 200_000 + b"]",
        b"".join(b"%x:\n" % number for number in range(150_000)),
    ],
    ids=["flow", "block", "containers", "mappings", "keys"],
)
def test_parsing_stops_at_the_limit_of_values(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    events = count_events(monkeypatch)
    with pytest.raises(RequestEntityTooLarge, match="more than 20000 values; send JSON"):
        decode_yaml(body[:YAML_BYTES_MAX])
    assert len(events) < YAML_VALUES_MAX + 10


def count_events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    taken: list[str] = []
    parse = yaml.parse

    def counted(text: str, Loader: Any) -> Any:  # noqa: N803 - the name of the parameter
        for event in parse(text, Loader=Loader):
            taken.append(type(event).__name__)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    return taken


def test_keys_are_always_text() -> None:
    assert decode_yaml(b"1e999: a\n0x10: b\n") == {"1e999": "a", "0x10": "b"}


def _is_text_in_any_yaml(text: str) -> bool:
    """PyYAML writes 0E0 without quotes; to every newer reader, ours too, that is a number."""
    try:
        float(text)
    except ValueError:
        return True
    return False


_keys = st.text(st.characters(codec="utf-8", categories=["L", "N"]), min_size=1, max_size=5)
_documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.text(max_size=10).filter(_is_text_in_any_yaml),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=12,
)


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


@settings(deadline=None)
@given(_documents)
def test_a_document_written_as_yaml_is_parsed_unchanged(document: Any) -> None:
    assert decode_yaml(yaml.dump(document, Dumper=_NoAliases).encode()) == document


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_parsed_or_rejected(body: bytes) -> None:
    try:
        decode_yaml(body)
    except BadRequest as error:
        assert error.message  # noqa: PT017


async def test_objects_are_created_and_updated_from_yaml(server: InProcessServer) -> None:
    body = yaml.safe_dump(workload()).encode()
    created = await server.json("POST", WORKLOADS, body, headers=HEADERS)
    created["metadata"]["labels"] = {"a": "1"}
    body = yaml.dump(created, Dumper=_NoAliases).encode()
    updated = await server.json("PUT", f"{WORKLOADS}/web", body, headers=HEADERS)
    assert updated["metadata"]["labels"] == {"a": "1"}


async def test_unknown_fields_of_yaml_are_reported_and_duplicates_rejected(
    server: InProcessServer,
) -> None:
    body = yaml.safe_dump({**workload(), "colour": "blue"}).encode()
    options = {"fieldValidation": "Strict"}
    status = await server.status("POST", WORKLOADS, body, headers=HEADERS, **options)
    assert "colour" in status["message"]
    twice = yaml.safe_dump(workload()).encode() + b"kind: Workload\n"
    status = await server.status("POST", WORKLOADS, twice, headers=HEADERS)
    assert (status["code"], "duplicate key" in status["message"]) == (400, True)


@pytest.mark.parametrize("item", [b"1", b"{}", b"[]", b'""', b'"a\\"b"', b'"\\\\"', b'"\\\\\\","'])
def test_too_many_values_are_refused_before_they_are_decoded(item: bytes) -> None:
    for count, refused in ((VALUES_MAX // 2 - 10, False), (VALUES_MAX + 10, True)):
        body = b"[" + b",".join([item] * count) + b"]"
        if refused:
            with pytest.raises(RequestEntityTooLarge) as raised:
                decode_json(body)
            assert f"it may have {VALUES_MAX}" in raised.value.message
        else:
            assert len(decode_json(body)) == count


@pytest.mark.parametrize(
    "text", ["," * 2_000_000, "{[,]}" * 200_000, '",' * 300_000, "\\," * 300_000, '\\"' * 300_000]
)
def test_separators_inside_of_strings_do_not_count(text: str) -> None:
    check_value_count(encode({"data": {"table": text, text[:10]: "x"}}))
