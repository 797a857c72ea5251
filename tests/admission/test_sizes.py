"""Which sizes a workload may ask for, and what it is told when it may not."""

from __future__ import annotations

from datum_compute.admission.context_rules import Findings
from datum_compute.admission.questions import Answers, Write
from datum_compute.admission.rules.workload_references import TYPES, asks_for_types, size_is_offered
from datum_compute.api.compute.instance_type import BUILT_IN_SIZES, size_name
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import findings

Catalogue = tuple[JsonObject, ...]


def a_type(name: str, phase: str = "Active", instead: str = "") -> JsonObject:
    lifecycle = {"phase": phase, "replacementInstanceType": instead}
    return {"metadata": {"name": name}, "spec": {"lifecycle": lifecycle}}


def asking_for(size: str) -> JsonObject:
    return {"spec": {"template": {"spec": {"runtime": {"resources": {"instanceType": size}}}}}}


KEPT = (
    a_type("d1-standard-2"),
    a_type("d1-standard-4", "Deprecated", "d1-standard-8"),
    a_type("d0-tiny", "Disabled", "d1-standard-2"),
)


def found(size: str, before: str = "", kept: Catalogue = KEPT) -> Findings:
    write = Write(WORKLOAD, "default", asking_for(size), asking_for(before) if before else None)
    return findings(size_is_offered(write, Answers(listed={TYPES: kept})))


def test_nobody_is_asked_when_the_spec_stays() -> None:
    stays = Write(WORKLOAD, "default", asking_for("gone"), asking_for("gone"))
    assert list(asks_for_types(stays)) == []
    assert findings(size_is_offered(stays, Answers())) == Findings()


def test_an_active_size_is_accepted_in_silence_under_both_names() -> None:
    assert found("d1-standard-2") == Findings()
    assert found("datumcloud/d1-standard-2") == Findings()
    assert size_name("datumcloud/d1-standard-2") == "d1-standard-2"


def test_an_unknown_size_is_refused_with_the_nearest_names() -> None:
    (cause,) = found("d1-standart-2").causes
    assert cause.field == "spec.template.spec.runtime.resources.instanceType"
    assert cause.reason == "FieldValueNotSupported"
    assert "did you mean d1-standard-2" in cause.message


def test_a_size_that_is_like_no_other_is_refused_with_the_list() -> None:
    (cause,) = found("enormous").causes
    assert "there are: d1-standard-2, d1-standard-4" in cause.message
    assert "d0-tiny" not in cause.message


def test_a_deprecated_size_is_accepted_with_a_warning() -> None:
    findings = found("d1-standard-4")
    assert not findings.causes
    (warning,) = findings.warnings
    assert "d1-standard-4 is deprecated; use d1-standard-8 instead" in warning


def test_a_disabled_size_is_refused_and_its_replacement_named() -> None:
    (cause,) = found("d0-tiny").causes
    assert cause.reason == "FieldValueForbidden"
    assert "use d1-standard-2 instead" in cause.message


def test_a_workload_keeps_the_size_it_has_whatever_became_of_it() -> None:
    """Or it could not even be scaled down."""
    assert not found("d0-tiny", before="datumcloud/d0-tiny").causes
    assert not found("datumcloud/vanished", before="vanished").causes
    assert found("d0-tiny", before="d1-standard-2").causes


def test_without_a_catalogue_the_built_in_sizes_count() -> None:
    assert [found(name, kept=()) for name in BUILT_IN_SIZES] == [Findings()] * 4
    assert found("d1-standard-3", kept=()).causes
