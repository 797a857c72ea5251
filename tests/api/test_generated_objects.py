"""The schema, the model and the codec agree for every valid object of every kind."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import JsonObject, decode, encode, from_json
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.report import Check
from datum_compute.api.schema.validate import ValidationReport, compile_check
from tests.api.generated_objects import objects_of


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.kind))
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_defaults_do_not_change_the_decoded_object_and_encoded_objects_are_valid(
    kind: KindInfo[Any], data: st.DataObject
) -> None:
    sent = data.draw(objects_of(kind))
    read = from_json(sent, kind.model)

    defaulted = apply_defaults(kind, sent)
    assert from_json(defaulted, kind.model) == read
    assert apply_defaults(kind, defaulted) == defaulted

    written = decode(encode(read))  # defaults are left out again
    assert from_json(written, kind.model) == read
    assert from_json(apply_defaults(kind, written), kind.model) == read


@cache
def _check(kind: KindInfo[Any]) -> Check:
    return compile_check(structural_schema(kind))


def apply_defaults(kind: KindInfo[Any], obj: JsonObject) -> JsonObject:
    report = ValidationReport()
    result: JsonObject = _check(kind)(obj, "", report)
    assert (report.errors, report.unknown) == ([], [])
    return result
