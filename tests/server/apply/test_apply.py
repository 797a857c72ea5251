"""Server-side apply as a pure function. The merge library of Kubernetes wrote the golden files."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from datum_compute.api.errors import Conflict
from datum_compute.api.meta.codec import JsonObject
from datum_compute.server.apply.apply import ApplyConfiguration
from datum_compute.server.apply.compare import applied_fields, compare_objects
from datum_compute.server.apply.field_set import difference, intersection
from datum_compute.server.apply.managed_fields import (
    APPLY,
    UPDATE,
    FieldManager,
    entries_after_update,
    entries_in,
    fields_owned_by,
    with_entries,
)
from datum_compute.server.apply.merge import merge_order
from tests.server.apply.generated_configurations import SHAPE, configs

SCENARIOS = json.loads((Path(__file__).parent.parent / "golden" / "apply.json").read_text())
EARLY, LATE = "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"


def application(
    config: JsonObject, name: str = "one", *, force: bool = False
) -> ApplyConfiguration:
    return ApplyConfiguration(config, FieldManager(name, APPLY, "v1"), force, SHAPE)


def create_with_manager(config: JsonObject, name: str = "one") -> JsonObject:
    return application(config, name).set_sole_manager(config, EARLY)


def update_with_manager(live: JsonObject, new: JsonObject, name: str) -> JsonObject:
    found = compare_objects(live, new, SHAPE)
    manager = FieldManager(name, UPDATE, "v1")
    entries = entries_after_update(
        entries_in(live["metadata"]), manager, found, found.changed, LATE
    )
    return with_entries(new, entries)


def fields_of(obj: JsonObject, name: str) -> Any:
    return fields_owned_by(entries_in(obj["metadata"]), FieldManager(name, APPLY, "v1"))


@pytest.mark.parametrize("number", range(len(SCENARIOS)))
def test_a_sequence_of_writes_has_the_result_of_kubernetes(number: int) -> None:
    live: JsonObject = {"metadata": {"name": "n"}}
    for step in SCENARIOS[number]["steps"]:
        config = {"metadata": {"name": "n"}, **step["object"]}
        try:
            if step["op"] == "update":
                new = {**config, "metadata": live["metadata"]}
                live = update_with_manager(live, new, step["manager"])
            elif "spec" not in live:
                live = create_with_manager(config, step["manager"])
            else:
                applied = application(config, step["manager"], force=step["force"])
                live = applied.apply_to(live, LATE)
        except Conflict as error:
            found = sorted([c.message.split('"')[1], c.field] for c in error.causes)
            assert {"conflicts": found} == step["expected"]
        else:
            assert {"object": {"spec": live["spec"]}} == step["expected"]


@settings(deadline=None)
@given(configs())
def test_a_second_equal_apply_is_a_noop(config: JsonObject) -> None:
    live = create_with_manager(config)
    assert application(config).apply_to(live, LATE) == live


@settings(deadline=None)
@given(configs(), configs())
def test_a_second_equal_apply_over_another_manager_is_a_noop(
    first: JsonObject, second: JsonObject
) -> None:
    live = application(second, "two", force=True).apply_to(create_with_manager(first), EARLY)
    assert application(second, "two").apply_to(live, LATE) == live


@settings(deadline=None)
@given(configs(), configs())
def test_managers_of_different_fields_never_conflict(first: JsonObject, second: JsonObject) -> None:
    shared = intersection(applied_fields(first, SHAPE), applied_fields(second, SHAPE))
    if shared:
        return
    live = application(second, "two").apply_to(create_with_manager(first), LATE)
    assert fields_of(live, "one") == applied_fields(first, SHAPE)
    assert fields_of(live, "two") == applied_fields(second, SHAPE)


@settings(deadline=None)
@given(configs(), configs())
def test_giving_up_fields_keeps_those_of_other_managers(
    first: JsonObject, second: JsonObject
) -> None:
    live = application(second, "two", force=True).apply_to(create_with_manager(first), EARLY)
    nothing = {"metadata": {"name": "n"}, "spec": {"a": "1"}}
    after = application(nothing, "one", force=True).apply_to(live, LATE)
    kept = difference(applied_fields(second, SHAPE), {"f:spec": {"f:a": {}}})
    assert not difference(kept, applied_fields(after, SHAPE))


@settings(deadline=None)
@given(configs(), configs())
def test_a_conflict_changes_nothing_and_force_overrides_it(
    first: JsonObject, second: JsonObject
) -> None:
    live = create_with_manager(first)
    with contextlib.suppress(Conflict):
        application(second, "two").apply_to(live, LATE)
    assert live == create_with_manager(first)
    after = application(second, "two", force=True).apply_to(live, LATE)
    assert not compare_objects(
        after, application(second, "two").apply_to(after, LATE), SHAPE
    ).changed


def test_fields_without_an_owner_get_the_owner_before_first_apply() -> None:
    live = {"metadata": {"name": "n"}, "spec": {"a": "1", "b": "1"}}
    config = {"metadata": {"name": "n"}, "spec": {"a": "2"}}
    with pytest.raises(Conflict, match="before-first-apply"):
        application(config).apply_to(live, LATE)


def test_the_message_of_a_conflict_lists_managers_and_fields() -> None:
    live = create_with_manager({"metadata": {"name": "n"}, "spec": {"a": "1", "b": "1"}})
    live = update_with_manager(
        live, {**live, "spec": {**live["spec"], "texts": {"p": "1"}}}, "writer"
    )
    one = {"metadata": {"name": "n"}, "spec": {"a": "2"}}
    with pytest.raises(Conflict) as single:
        application(one, "two").apply_to(live, LATE)
    assert single.value.message == 'Apply failed with 1 conflict: conflict with "one": .spec.a'
    several = {"metadata": {"name": "n"}, "spec": {"a": "2", "b": "2", "texts": {"p": "2"}}}
    with pytest.raises(Conflict) as many:
        application(several, "two").apply_to(live, LATE)
    assert many.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one":\n- .spec.a\n- .spec.b\n'
        'conflicts with "writer" using v1:\n- .spec.texts.p'
    )


def test_the_error_for_many_conflicts_names_the_first_and_counts_the_rest() -> None:
    texts = {f"p{number:03}": "1" for number in range(150)}
    live = create_with_manager({"metadata": {"name": "n"}, "spec": {"a": "1"}})
    live = update_with_manager(live, {**live, "spec": {**live["spec"], "texts": texts}}, "writer")
    config = {"metadata": {"name": "n"}, "spec": {"a": "2", "texts": dict.fromkeys(texts, "2")}}
    with pytest.raises(Conflict) as many:
        application(config, "two").apply_to(live, LATE)
    fields = [cause.field for cause in many.value.causes]
    assert fields == [".spec.a", *(f".spec.texts.p{number:03}" for number in range(99))]
    assert many.value.message.startswith("Apply failed with 151 conflicts: ")
    assert many.value.message.endswith("\n- .spec.texts.p098\nand 51 more")


def test_updaters_beyond_the_limit_share_one_entry() -> None:
    live = create_with_manager({"metadata": {"name": "n"}, "spec": {"a": "1"}})
    for number in range(15):
        texts = {**live["spec"].get("texts", {}), f"t{number}": "1"}
        live = update_with_manager(
            live, {**live, "spec": {**live["spec"], "texts": texts}}, f"w{number:02d}"
        )
    updaters = [e for e in entries_in(live["metadata"]) if e["operation"] == "Update"]
    assert len(updaters) == 10
    ancient = next(e for e in updaters if e["manager"] == "ancient-changes")
    assert set(ancient["fieldsV1"]["f:spec"]["f:texts"]) == {".", *(f"f:t{n}" for n in range(6))}


@pytest.mark.parametrize(
    ("live", "applied", "expected"),
    [
        ("abc", "", "abc"),
        ("", "abc", "abc"),
        ("axb", "ba", "xba"),
        ("xa", "na", "xna"),
        ("abc", "cn", "abcn"),
    ],
)
def test_applied_items_keep_their_order_among_the_others(
    live: str, applied: str, expected: str
) -> None:
    assert "".join(merge_order(live, applied)) == expected
