"""Rules for deletions, asked and answered as those of ``reading.py`` are.

They speak about what is to go; an object that is going already may be deleted as often as anybody
likes. To add a rule: write it in the file of what it is about and list it in ``REMOVING``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from datum_compute.admission import retirement
from datum_compute.admission.questions import Answers, Question, Removal
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import INSTANCE_TYPE


@dataclass(frozen=True, slots=True)
class RemovingRule:
    asks: Callable[[Removal], Iterable[Question]]
    finds: Callable[[Removal, Answers], Iterable[Cause]]


REMOVING: Mapping[str, tuple[RemovingRule, ...]] = {
    INSTANCE_TYPE.resource: (
        RemovingRule(retirement.asks_for_the_catalogue, retirement.type_is_retired),
    ),
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
