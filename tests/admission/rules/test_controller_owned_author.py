"""The annotation with the user who changed a workload last."""

from __future__ import annotations

import pytest

from datum_compute.admission.rules.controller_owned import with_author
from datum_compute.api.kinds import CONFIG_MAP, WORKLOAD
from datum_compute.api.labels import CHANGED_BY
from datum_compute.api.meta.codec import JsonObject


def workload(image: str, *, by: str = "", **annotations: str) -> JsonObject:
    marks = {**annotations, **({CHANGED_BY: by} if by else {})}
    return {"metadata": {"name": "web", "annotations": marks}, "spec": {"image": image}}


def author(obj: JsonObject) -> str:
    found: str = obj["metadata"]["annotations"].get(CHANGED_BY, "")
    return found


@pytest.mark.parametrize("claimed", ["", "eve"])
def test_the_author_of_a_new_workload_is_its_creator(claimed: str) -> None:
    assert author(with_author(WORKLOAD, workload("a", by=claimed), None, "ada")) == "ada"


@pytest.mark.parametrize("claimed", ["", "eve", "ada"])
def test_a_change_of_the_spec_sets_the_author(claimed: str) -> None:
    old = workload("a", by="ada")
    assert author(with_author(WORKLOAD, workload("b", by=claimed), old, "bob")) == "bob"


@pytest.mark.parametrize("claimed", ["", "eve", "ada"])
def test_another_change_keeps_the_author(claimed: str) -> None:
    old = workload("a", by="ada")
    after = with_author(WORKLOAD, workload("a", by=claimed, note="x"), old, "bob")
    assert author(after) == "ada"
    assert after["metadata"]["annotations"]["note"] == "x"


def test_a_sent_author_is_removed_from_a_workload_without_one() -> None:
    assert author(with_author(WORKLOAD, workload("a", by="eve"), workload("a"), "eve")) == ""


def test_other_kinds_are_unchanged() -> None:
    obj = workload("a", by="eve")
    assert with_author(CONFIG_MAP, obj, None, "ada") is obj
