"""How many values a JSON document may have, counted before it is decoded."""

from __future__ import annotations

import pytest

from datum_compute.api.errors import RequestEntityTooLarge
from datum_compute.api.meta.codec import encode
from datum_compute.server.encoding.body import VALUES_MAX, check_value_count, decode_json


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
def test_what_is_inside_of_strings_does_not_count(text: str) -> None:
    check_value_count(encode({"data": {"table": text, text[:10]: "x"}}))
