"""The instance types that a workload can use, and the errors for others."""

from __future__ import annotations

from datum_compute.admission.context_rules import Findings
from datum_compute.admission.queries import Answers, Write
from datum_compute.admission.rules.workload_references import (
    TYPES,
    check_instance_type_offered,
    query_instance_types,
)
from datum_compute.api.compute.instance_type import BUILT_IN_SIZES, size_name
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import findings

Catalogue = tuple[JsonObject, ...]


def a_type(name: str, phase: str = "Active", instead: str = "") -> JsonObject:
    lifecycle = {"phase": phase, "replacementInstanceType": instead}
    return {"metadata": {"name": name}, "spec": {"lifecycle": lifecycle}}


def with_type(size: str) -> JsonObject:
    return {"spec": {"template": {"spec": {"runtime": {"resources": {"instanceType": size}}}}}}


KEPT = (
    a_type("d1-standard-2"),
    a_type("d1-standard-4", "Deprecated", "d1-standard-8"),
    a_type("d0-tiny", "Disabled", "d1-standard-2"),
)


def found(size: str, before: str = "", kept: Catalogue = KEPT) -> Findings:
    write = Write(WORKLOAD, "default", with_type(size), with_type(before) if before else None)
    return findings(check_instance_type_offered(write, Answers(listed={TYPES: kept})))


def test_the_catalogue_is_not_queried_when_the_spec_is_unchanged() -> None:
    unchanged = Write(WORKLOAD, "default", with_type("gone"), with_type("gone"))
    assert list(query_instance_types(unchanged)) == []
    assert findings(check_instance_type_offered(unchanged, Answers())) == Findings()


def test_an_active_type_is_accepted_under_both_names_without_a_warning() -> None:
    assert found("d1-standard-2") == Findings()
    assert found("datumcloud/d1-standard-2") == Findings()
    assert size_name("datumcloud/d1-standard-2") == "d1-standard-2"


def test_an_unknown_type_is_refused_with_the_most_similar_names() -> None:
    (cause,) = found("d1-standart-2").causes
    assert cause.field == "spec.template.spec.runtime.resources.instanceType"
    assert cause.reason == "FieldValueNotSupported"
    assert "did you mean d1-standard-2" in cause.message


def test_a_type_without_a_similar_name_is_refused_with_the_list() -> None:
    (cause,) = found("enormous").causes
    assert "there are: d1-standard-2, d1-standard-4" in cause.message
    assert "d0-tiny" not in cause.message


def test_a_deprecated_type_is_accepted_with_a_warning() -> None:
    findings = found("d1-standard-4")
    assert not findings.causes
    (warning,) = findings.warnings
    assert "d1-standard-4 is deprecated; use d1-standard-8 instead" in warning


def test_a_disabled_type_is_refused_with_its_replacement() -> None:
    (cause,) = found("d0-tiny").causes
    assert cause.reason == "FieldValueForbidden"
    assert "use d1-standard-2 instead" in cause.message


def test_a_workload_can_keep_a_disabled_or_deleted_type() -> None:
    """Otherwise it could not be scaled down."""
    assert not found("d0-tiny", before="datumcloud/d0-tiny").causes
    assert not found("datumcloud/vanished", before="vanished").causes
    assert found("d0-tiny", before="d1-standard-2").causes


def test_without_a_catalogue_the_built_in_types_apply() -> None:
    assert [found(name, kept=()) for name in BUILT_IN_SIZES] == [Findings()] * 4
    assert found("d1-standard-3", kept=()).causes
