"""A Workload may name the cities that its project has: those of its LocationBindings.

Asked on create, and on update of the cities that are named for the first time: a workload whose
city was withdrawn can still be edited, scaled and taken elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.nearest import hint
from datum_compute.admission.questions import Answers, Listing, Write
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.fields import CITY_CODE_KEY
from datum_compute.api.identity import normalized_city
from datum_compute.api.kinds import LOCATION_BINDING

LOCATIONS = Listing(LOCATION_BINDING)
_NONE = "the project has no locations yet; an operator gives it some as LocationBindings"


def asks_for_locations(write: Write) -> Iterable[Listing]:
    if _new_cities(write):
        yield LOCATIONS


def cities_are_known(write: Write, answers: Answers) -> Iterable[Cause]:
    named = _new_cities(write)
    known = _known_cities(answers) if named else []
    for path, city in named:
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
        for position, city in enumerate(placement["cityCodes"]):
            yield f"spec.placements[{index}].cityCodes[{position}]", normalized_city(city)


def _known_cities(answers: Answers) -> list[str]:
    topologies = (b["spec"].get("topology", {}) for b in answers.listed[LOCATIONS])
    found = {normalized_city(topology.get(CITY_CODE_KEY, "")) for topology in topologies}
    return sorted(found - {""})
