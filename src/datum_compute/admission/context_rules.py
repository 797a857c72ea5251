"""Rules that must know more than the object. They run after those of ``chain.py`` found no fault.

A rule is two pure functions: ``asks`` says what it must know about a write, ``finds`` judges by the
answers. It yields causes (the write is refused) and warnings (it is stored, and the caller is
told). Whoever runs the rules answers the questions first: the embedded server from its store, the
webhook over a client; what they answer may be a moment old.
To add a rule: write it in the file of what it is about and list it in ``READING``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.admission import cities, grace, leavingnetworks, ownership, project, sizes
from datum_compute.admission.findings import Finding, Warned
from datum_compute.admission.questions import Answers, Question, Write
from datum_compute.admission.rules import services as entitlement
from datum_compute.admission.rules.workload_references import (
    asks_for_access,
    references_are_allowed,
)
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    INSTANCE_TYPE,
    PROJECT,
    WORKLOAD,
)


@dataclass(frozen=True, slots=True)
class ReadingRule:
    asks: Callable[[Write], Iterable[Question]]
    finds: Callable[[Write, Answers], Iterable[Finding]]


_OWNERSHIP = (ReadingRule(ownership.asks_who_controls, ownership.controllers_write),)

READING: Mapping[str, tuple[ReadingRule, ...]] = {
    WORKLOAD.resource: (
        ReadingRule(entitlement.asks_for_access, entitlement.project_has_access),
        ReadingRule(cities.asks_for_locations, cities.cities_are_known),
        ReadingRule(sizes.asks_for_types, sizes.size_is_offered),
        ReadingRule(asks_for_access, references_are_allowed),
        ReadingRule(leavingnetworks.asks_for_networks, leavingnetworks.networks_stay),
    ),
    DEPLOYMENT.resource: _OWNERSHIP,
    INSTANCE.resource: _OWNERSHIP,
    PROJECT.resource: (ReadingRule(project.asks_for_organizations, project.organization_is_there),),
    ENTITLEMENT.resource: (
        ReadingRule(entitlement.asks_for_services, entitlement.service_is_offered),
    ),
    INSTANCE_TYPE.resource: (ReadingRule(grace.asks_nothing, grace.grace_has_passed),),
}


class Findings(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()


_NOTHING = Findings()


def questions_of(write: Write) -> tuple[Question, ...]:
    """Everything that must be answered before the write can be judged, each once, in order."""
    rules = READING.get(write.kind.resource, ())
    return tuple(dict.fromkeys(question for rule in rules for question in rule.asks(write)))


def judged(write: Write, answers: Answers) -> Findings:
    rules = READING.get(write.kind.resource, ())
    found = [finding for rule in rules for finding in rule.finds(write, answers)]
    if not found:
        return _NOTHING
    return Findings(
        causes=tuple(f for f in found if isinstance(f, Cause)),
        warnings=tuple(f.text for f in found if isinstance(f, Warned)),
    )
