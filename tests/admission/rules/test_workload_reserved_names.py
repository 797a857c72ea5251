"""Reserved names in the metadata of a template are refused, unless they were stored before."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.rules.workload import check_reserved_names as rule
from datum_compute.api import labels
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import with_template


def marked(**metadata: Any) -> JsonObject:
    made = with_template()
    made["spec"]["template"]["metadata"] = metadata
    return made


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("annotations", labels.QUARANTINE_REASON),
        ("annotations", labels.COPY_OF),
        ("annotations", labels.WORK_NAME),
        ("labels", labels.UPSTREAM_CLUSTER),
        ("labels", labels.CELL),
        ("labels", labels.MANAGED),
        ("labels", "Compute.DatumAPIs.com/cell"),
    ],
)
def test_a_reserved_name_is_refused_unless_it_was_stored_before(part: str, key: str) -> None:
    (cause,) = rule(marked(**{part: {key: "x"}}), None)
    assert (cause.field, cause.reason) == (f"spec.template.metadata.{part}", "FieldValueForbidden")
    assert key in cause.message
    before = marked(**{part: {key: "x"}})
    assert list(rule(marked(**{part: {key: "x", "team": "a"}}), before)) == []


@pytest.mark.parametrize("key", [labels.RESTARTED_AT, "app", "app.kubernetes.io/name", "x.io/cell"])
def test_other_names_are_accepted(key: str) -> None:
    assert list(rule(marked(labels={key: "x"}, annotations={key: "x"}), None)) == []
    assert list(rule(marked(labels=None), None)) == []
