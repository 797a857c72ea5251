"""A Workload may name the cities that its project has: those of its LocationBindings.

Asked on create, and on update of the cities that are named for the first time: a workload whose
city was withdrawn can still be edited, scaled and taken elsewhere. A city that cannot be used now
is no mistake of the workload's, which may wait for it: the caller is warned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.findings import Finding, Warned
from datum_compute.admission.nearest import hint
from datum_compute.admission.questions import Answers, Listing, Write
from datum_compute.api.conditions import FALSE
from datum_compute.api.errors import Cause
from datum_compute.api.identity import normalized_city
from datum_compute.api.kinds import LOCATION_BINDING
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import CITY_CODE_KEY

LOCATIONS = Listing(LOCATION_BINDING)
_NONE = "the project has no locations yet; an operator gives it some as LocationBindings"


def asks_for_locations(write: Write) -> Iterable[Listing]:
    if _new_cities(write):
        yield LOCATIONS


def cities_are_known(write: Write, answers: Answers) -> Iterable[Finding]:
    named = _new_cities(write)
    known = _known_cities(answers) if named else []
    closed = _closed_cities(answers) if named else {}
    for path, city in named:
        if city in closed:
            yield Warned(f"{path}: {city} cannot be used now: {closed[city]}")
        if city not in known:
            why = f"the project has no such location; {hint(city, known)}" if known else _NONE
            yield Cause(path, "FieldValueNotSupported", f'Unsupported value: "{city}": {why}')


def _new_cities(write: Write) -> list[tuple[str, str]]:
    if not write.changes_spec:
        return []
    before = {city for _, city in _cities(write.old)} if write.old is not None else set()
    return [(path, city) for path, city in _cities(write.new) if city not in before]


def _cities(workload: JsonObject) -> Iterator[tuple[str, str]]:
    """Each with its field; what was stored before cities were normalised counts too."""
    for index, placement in enumerate(workload["spec"]["placements"]):
        for field in ("cityCodes", "fallbackCityCodes"):
            for position, city in enumerate(placement.get(field, ())):
                yield f"spec.placements[{index}].{field}[{position}]", normalized_city(city)


def _known_cities(answers: Answers) -> list[str]:
    found = {_city_of(binding) for binding in answers.listed[LOCATIONS]}
    return sorted(found - {""})


def _closed_cities(answers: Answers) -> dict[str, str]:
    """Those of which every location says that it cannot be used, with what the first says."""
    closed: dict[str, str] = {}
    opened: set[str] = set()
    for binding in answers.listed[LOCATIONS]:
        said = _available(binding)
        if said.get("status") == FALSE:
            closed.setdefault(_city_of(binding), said.get("message") or said.get("reason", ""))
        else:
            opened.add(_city_of(binding))
    return {city: why for city, why in closed.items() if city not in opened}


def _available(binding: JsonObject) -> JsonObject:
    conditions: list[JsonObject] = binding.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c.get("type") == "Available"), {})


def _city_of(binding: JsonObject) -> str:
    return normalized_city(binding["spec"].get("topology", {}).get(CITY_CODE_KEY, ""))
