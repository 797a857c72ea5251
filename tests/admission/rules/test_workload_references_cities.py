"""The cities that a workload can use."""

from __future__ import annotations

import pytest

from datum_compute.admission.findings import AdmissionWarning
from datum_compute.admission.queries import Answers, Write
from datum_compute.admission.rules.workload_references import (
    LOCATIONS,
    check_cities_known,
    query_locations,
)
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import in_cities


def a_location(city: str) -> JsonObject:
    return {"spec": {"topology": {"topology.datum.net/city-code": city} if city else {}}}


def found(new: JsonObject, old: JsonObject | None, *known: str) -> list[Cause]:
    answers = Answers(listed={LOCATIONS: [a_location(city) for city in known]})
    findings = check_cities_known(Write(WORKLOAD, "default", new, old), answers)
    return [finding for finding in findings if isinstance(finding, Cause)]


def test_a_city_of_the_project_is_accepted_in_any_case_and_with_spaces() -> None:
    assert found(in_cities(("DFW",), ("ORD",)), None, "dfw", " ord") == []


def test_an_unavailable_city_causes_a_warning() -> None:
    condition = {"type": "Available", "status": "False", "message": "Cell lhr does not respond"}
    closed = {**a_location("LHR"), "status": {"conditions": [condition]}}
    answers = Answers(listed={LOCATIONS: [closed, a_location("DFW")]})
    write = Write(WORKLOAD, "default", in_cities(("LHR", "DFW")), None)
    (warned,) = check_cities_known(write, answers)
    assert isinstance(warned, AdmissionWarning)
    assert (
        "LHR cannot start instances now, and the workload waits for it: Cell lhr does not respond"
        in warned.text
    )
    open_again = Answers(listed={LOCATIONS: [closed, a_location("LHR"), a_location("DFW")]})
    assert list(check_cities_known(write, open_again)) == []


def test_an_unknown_city_is_refused_with_the_most_similar_name() -> None:
    (cause,) = found(in_cities(("DFW",), ("ORD", "DFX")), None, "DFW", "ORD")
    assert (cause.field, cause.reason) == (
        "spec.placements[1].cityCodes[1]",
        "FieldValueNotSupported",
    )
    assert cause.message == (
        'Unsupported value: "DFX": the project has no such location; did you mean DFW?'
    )


def test_a_city_without_a_similar_name_is_refused_with_the_list() -> None:
    (cause,) = found(in_cities(("SYD",)), None, "ORD", "DFW")
    assert cause.message.endswith("there are: DFW, ORD")


def test_without_locations_the_error_refers_to_an_operator() -> None:
    (cause,) = found(in_cities(("DFW",)), None, "")
    assert "ask an operator to add a LocationBinding" in cause.message


@pytest.mark.parametrize("after", [in_cities(("GONE",)), in_cities((), ("DFW", "GONE"))])
def test_a_withdrawn_city_can_stay_and_move_between_placements(after: JsonObject) -> None:
    assert found(after, in_cities(("gone",)), "DFW") == []


def test_an_update_refuses_only_new_cities() -> None:
    (cause,) = found(in_cities(("GONE", "LOST")), in_cities(("GONE",)), "DFW")
    assert cause.field == "spec.placements[0].cityCodes[1]"


def test_locations_are_queried_only_for_new_cities() -> None:
    old = in_cities(("DFW",))
    assert list(query_locations(Write(WORKLOAD, "default", old, None))) == [LOCATIONS]
    assert list(query_locations(Write(WORKLOAD, "default", old, old))) == []
