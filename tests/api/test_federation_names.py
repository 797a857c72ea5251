"""Names that are equal on every plane."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.planes import (
    city_policy_name,
    decode_project_label,
    deployment_name,
    deployment_of,
    encode_cluster_label,
    execution_namespace,
    federation_namespace,
    instance_name,
    normalize_city,
)

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
CITIES = st.from_regex(r"[A-Za-z0-9]{2,5}", fullmatch=True)


@given(NAMES, st.uuids().map(str), NAMES, CITIES)
def test_deployment_names_are_short_and_valid(
    workload: str, uid: str, placement: str, city: str
) -> None:
    name = deployment_name(workload, uid, placement, city)
    assert len(name) <= 41
    assert SUBDOMAIN.fullmatch(name)
    assert name.startswith(workload[:30].rstrip("-"))
    assert len(instance_name(name, 999)) <= 63


def test_a_workload_name_with_dots_gives_a_valid_deployment_name() -> None:
    name = deployment_name("a" * 29 + ".tail", "u", "p", "DFW")
    assert SUBDOMAIN.fullmatch(name), name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("web", "u", "a-b", "c"), ("web", "u", "a", "b-c")),
        (("web", "u1", "p", "DFW"), ("web", "u2", "p", "DFW")),
        (("web-a", "u", "p", "DFW"), ("web", "u", "a-p", "DFW")),
    ],
)
def test_different_parts_give_different_names(
    one: tuple[str, str, str, str], other: tuple[str, str, str, str]
) -> None:
    assert deployment_name(*one) != deployment_name(*other)


def test_the_case_of_a_city_does_not_matter() -> None:
    assert deployment_name("web", "u", "p", "dfw") == deployment_name("web", "u", "p", "DFW")
    assert normalize_city(" dfw ") == "DFW"


def test_the_recipe_of_names_does_not_change() -> None:
    """Objects that exist carry these names: a new recipe would make every one of them anew."""
    assert deployment_name("web", "uid-1", "default", "DFW") == "web-247760041b"
    assert instance_name("web-247760041b", 0) == "web-247760041b-0"
    assert federation_namespace("1-2") == "ns-1-2"
    assert execution_namespace("dfw") == "karmada-es-dfw"
    assert city_policy_name("DFW") == "city-dfw"


@pytest.mark.parametrize(
    ("label", "project"),
    [
        ("cluster-datum-cloud", "datum-cloud"),
        ("cluster-_test-project", "test-project"),
        ("cluster-org_proj", "proj"),
        ("cluster-single", "single"),
        ("cluster-", None),
        ("cluster-a_", None),
        ("single", None),
        ("", None),
    ],
)
def test_a_label_names_the_last_segment(label: str, project: str | None) -> None:
    assert decode_project_label(label) == project


@given(NAMES)
def test_a_project_survives_the_label(project: str) -> None:
    assert decode_project_label(encode_cluster_label(project)) == project
    assert decode_project_label(encode_cluster_label(f"/org/{project}")) == project


def test_the_deployment_of_an_instance_is_its_label_else_its_name_without_the_ordinal() -> None:
    assert deployment_of("web-dfw-0", {labels.DEPLOYMENT_NAME: "shop"}) == "shop"
    assert deployment_of("web-dfw-0", {}) == "web-dfw"
    assert deployment_of("web-dfw-0") == "web-dfw"
    assert deployment_of("web") == ""
