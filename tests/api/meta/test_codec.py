"""Objects are encoded and decoded, and hashes depend on their content only."""

from __future__ import annotations

import pytest

from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.workload import Workload
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import (
    ApiStruct,
    DecodeError,
    canonical,
    canonical_diff_inputs,
    canonical_hash,
    decode,
    decode_as,
    deep_copy,
    encode,
    from_json,
    to_json,
)
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import ValidationReport, compile_check

CONTAINER = {"name": "web", "image": "example/web:1"}
TEMPLATE = {"spec": {"runtime": {"sandbox": {"containers": [CONTAINER]}}}}
PLACEMENT = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
MANIFEST = {
    "metadata": {"name": "web"},
    "spec": {"template": TEMPLATE, "placements": [PLACEMENT]},
}


class Old(ApiStruct, frozen=True, kw_only=True):
    name: str
    size: int = 1


class Inner(ApiStruct, frozen=True, kw_only=True):
    mode: str = "slow"


class New(ApiStruct, frozen=True, kw_only=True):
    """The same struct in a later release: more fields with defaults, in another order."""

    extra: list[str] = []
    inner: Inner = Inner()
    size: int = 1
    name: str


def test_a_new_field_with_a_default_does_not_change_the_hash() -> None:
    assert canonical_hash(Old(name="a")) == canonical_hash(New(name="a"))
    assert canonical_hash(Old(name="a", size=2)) == canonical_hash(New(name="a", size=2))


def test_a_default_that_is_written_out_does_not_change_the_hash() -> None:
    spelled = New(name="a", extra=[], inner=Inner(mode="slow"), size=1)
    assert canonical_hash(spelled) == canonical_hash(New(name="a"))


def test_any_change_of_content_changes_the_hash() -> None:
    variants = [
        New(name="a"),
        New(name="b"),
        New(name="a", size=2),
        New(name="a", extra=["x"]),
        New(name="a", extra=["x", "y"]),
        New(name="a", extra=["y", "x"]),
        New(name="a", inner=Inner(mode="fast")),
    ]
    assert len({canonical_hash(variant) for variant in variants}) == len(variants)


def test_defaults_of_the_server_do_not_change_the_template_hash() -> None:
    defaulted = compile_check(structural_schema(WORKLOAD))(MANIFEST, "", ValidationReport())
    assert defaulted != MANIFEST
    before, after = from_json(MANIFEST, Workload), from_json(defaulted, Workload)
    assert canonical_hash(before.spec.template) == canonical_hash(after.spec.template)


def test_the_hash_of_a_template_does_not_change_between_releases() -> None:
    """A changed hash would replace every existing instance."""
    template = from_json(TEMPLATE, InstanceTemplate)
    assert canonical_hash(template)[:12] == "0ba38d23eef9"


def test_a_decoded_object_equals_the_encoded_one() -> None:
    workload = from_json(MANIFEST, Workload)
    assert decode_as(encode(workload), Workload) == workload
    assert decode(encode(workload)) == to_json(workload)
    assert to_json(workload)["spec"] == MANIFEST["spec"]


def test_unknown_fields_are_ignored_when_a_struct_is_decoded() -> None:
    assert decode_as(b'{"name": "a", "later": 1}', Old) == Old(name="a")


@pytest.mark.parametrize("body", [b"", b"{", b"[1", b'{"name": 1}', b"null", b'"\xff"', b"NaN"])
def test_bytes_that_do_not_match_the_type_are_rejected(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_as(body, Old)


@pytest.mark.parametrize("body", [b"", b"{", b"NaN", b'"\xff"', b"{'a': 1}"])
def test_bytes_that_are_not_json_are_rejected(body: bytes) -> None:
    with pytest.raises(DecodeError):
        decode(body)


def test_the_error_of_a_value_of_the_wrong_type_names_its_field() -> None:
    with pytest.raises(DecodeError, match="size"):
        from_json({"name": "a", "size": "large"}, Old)


def test_a_copy_shares_no_part_with_the_original() -> None:
    original = {"a": {"b": [1]}}
    copy = deep_copy(original)
    copy["a"]["b"].append(2)
    assert original == {"a": {"b": [1]}}


def test_equal_fields_are_left_out_of_a_comparison() -> None:
    one, other = (from_json(MANIFEST, Workload) for _ in range(2))
    assert canonical_diff_inputs(one, other) == [{}, {}]
    scaled = {**PLACEMENT, "scaleSettings": {"minReplicas": 2}}
    changed = from_json(
        {**MANIFEST, "spec": {"template": TEMPLATE, "placements": [scaled]}}, Workload
    )
    assert canonical_diff_inputs(one.spec, changed.spec) == [
        {"placements": None},
        {"placements": canonical(changed)["spec"]["placements"]},
    ]


def test_a_field_with_its_default_on_one_side_appears_on_the_other_side_only() -> None:
    assert canonical_diff_inputs(Old(name="a"), Old(name="a", size=2)) == [{}, {"size": 2}]
