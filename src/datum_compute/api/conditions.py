"""Conditions: one writer each, transition time only when the status changes.

Set several conditions of an object at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import keyed, says

TRUE: Final = "True"
FALSE: Final = "False"
UNKNOWN: Final = "Unknown"
ConditionStatus = Literal["True", "False", "Unknown"]

# lastTransitionTime of a condition that nobody has decided yet.
EPOCH = "1970-01-01T00:00:00Z"


class Condition(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """One thing that is so, is not so, or is not known, and why."""

    type: Annotated[str, says("What is said; one of each type in the list.")]
    status: Annotated[ConditionStatus, says("Whether it is so.")]
    reason: Annotated[str, says("The cause, one word for programs.")]
    message: Annotated[str, says("The cause, for people.")] = ""
    last_transition_time: Annotated[str, says("When the status changed last (RFC 3339).")] = EPOCH
    observed_generation: Annotated[int, says("The generation that this is said about.")] = 0


Conditions = Annotated[
    list[Condition], keyed("type"), says("What is known of the object, each with its reason.")
]


class ConditionValue(NamedTuple):
    """The status, reason and message of one condition, without type and time."""

    status: ConditionStatus
    reason: str
    message: str


def undecided(*types: str) -> list[Condition]:
    """Return the conditions of a new object that no controller has observed yet."""
    return [
        Condition(type=type_, status=UNKNOWN, reason="Pending", message="Not looked at yet")
        for type_ in types
    ]


def make_condition(type_: str, value: ConditionValue, *, generation: int, now: str) -> Condition:
    """Return the condition with this value, set now for an object at `generation`."""
    return Condition(
        type=type_,
        status=value.status,
        reason=value.reason,
        message=value.message,
        last_transition_time=now,
        observed_generation=generation,
    )


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    for condition in conditions:  # asked very often: a plain loop is twice as quick as next()
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    found = find_condition(conditions, type_)
    return found is not None and found.status == TRUE


def with_condition(conditions: Sequence[Condition], new: Condition) -> list[Condition]:
    """The list with ``new`` in place of its type, keeping the old transition time if unchanged."""
    old = find_condition(conditions, new.type)
    if old is not None and old.status == new.status:
        new = Condition(
            type=new.type,
            status=new.status,
            reason=new.reason,
            message=new.message,
            last_transition_time=old.last_transition_time,
            observed_generation=new.observed_generation,
        )
    if old is None:
        return [*conditions, new]
    return [new if c.type == new.type else c for c in conditions]


def set_conditions(
    conditions: Sequence[Condition],
    values: Mapping[str, ConditionValue],
    *,
    generation: int,
    now: str,
) -> list[Condition]:
    """The conditions with one for each value, by condition type."""
    updated = list(conditions)
    for type_, value in values.items():
        updated = with_condition(
            updated, make_condition(type_, value, generation=generation, now=now)
        )
    return updated
