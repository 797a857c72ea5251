"""Rules that must know more than the object. They run after those of ``chain.py`` found no fault.

A rule is two pure functions: ``asks`` says what it must know about a write, ``finds`` judges by the
answers. It yields causes (the write is refused) and warnings (it is stored, and the caller is
told). Whoever runs the rules answers the questions first: the embedded server from its store, the
webhook over a client; what they answer may be a moment old.
To add a rule: write it in the file of what it is about and list it in ``CONTEXT_RULES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.admission.findings import AdmissionWarning, Finding
from datum_compute.admission.questions import Answers, Question, Removal, Write
from datum_compute.admission.rules import services as entitlement
from datum_compute.admission.rules.controller_owned import asks_who_controls, controllers_write
from datum_compute.admission.rules.instance_type import (
    asks_for_the_catalogue,
    asks_nothing,
    grace_has_passed,
    type_is_retired,
)
from datum_compute.admission.rules.services import asks_for_organizations, organization_is_there
from datum_compute.admission.rules.workload_references import (
    asks_for_access,
    asks_for_locations,
    asks_for_networks,
    asks_for_types,
    cities_are_known,
    networks_stay,
    references_are_allowed,
    size_is_offered,
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


_OWNERSHIP = (ReadingRule(asks_who_controls, controllers_write),)

CONTEXT_RULES: Mapping[str, tuple[ReadingRule, ...]] = {
    WORKLOAD.resource: (
        ReadingRule(entitlement.asks_for_access, entitlement.project_has_access),
        ReadingRule(asks_for_locations, cities_are_known),
        ReadingRule(asks_for_types, size_is_offered),
        ReadingRule(asks_for_access, references_are_allowed),
        ReadingRule(asks_for_networks, networks_stay),
    ),
    DEPLOYMENT.resource: _OWNERSHIP,
    INSTANCE.resource: _OWNERSHIP,
    PROJECT.resource: (ReadingRule(asks_for_organizations, organization_is_there),),
    ENTITLEMENT.resource: (
        ReadingRule(entitlement.asks_for_services, entitlement.service_is_offered),
    ),
    INSTANCE_TYPE.resource: (ReadingRule(asks_nothing, grace_has_passed),),
}


class Findings(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] = ()
    warnings: tuple[str, ...] = ()


_NOTHING = Findings()


def questions_of(write: Write) -> tuple[Question, ...]:
    """Everything that must be answered before the write can be judged, each once, in order."""
    rules = CONTEXT_RULES.get(write.kind.resource, ())
    return tuple(dict.fromkeys(question for rule in rules for question in rule.asks(write)))


def evaluate(write: Write, answers: Answers) -> Findings:
    rules = CONTEXT_RULES.get(write.kind.resource, ())
    found = [finding for rule in rules for finding in rule.finds(write, answers)]
    if not found:
        return _NOTHING
    return Findings(
        causes=tuple(f for f in found if isinstance(f, Cause)),
        warnings=tuple(f.text for f in found if isinstance(f, AdmissionWarning)),
    )


# --- Rules for deletions, asked and answered as those of ``reading.py`` are
# They speak about what is to go; an object that is going already may be deleted as often as anybody
# likes. To add a rule: write it in the file of what it is about and list it in ``REMOVING``.


@dataclass(frozen=True, slots=True)
class RemovingRule:
    asks: Callable[[Removal], Iterable[Question]]
    finds: Callable[[Removal, Answers], Iterable[Cause]]


REMOVING: Mapping[str, tuple[RemovingRule, ...]] = {
    INSTANCE_TYPE.resource: (RemovingRule(asks_for_the_catalogue, type_is_retired),),
}


def questions_before(removal: Removal) -> tuple[Question, ...]:
    """Everything that must be answered before the deletion can be judged, each once, in order."""
    asked = (question for rule in _rules(removal) for question in rule.asks(removal))
    return tuple(dict.fromkeys(asked))


def objections(removal: Removal, answers: Answers) -> list[Cause]:
    return [cause for rule in _rules(removal) for cause in rule.finds(removal, answers)]


def _rules(removal: Removal) -> tuple[RemovingRule, ...]:
    if removal.old["metadata"].get("deletionTimestamp"):
        return ()
    return REMOVING.get(removal.kind.resource, ())
