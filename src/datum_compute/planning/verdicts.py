"""Several conditions of one object, decided at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datum_compute.api.conditions import Condition, Verdict, decided, with_condition


def with_verdicts(
    conditions: Sequence[Condition], verdicts: Mapping[str, Verdict], *, generation: int, now: str
) -> list[Condition]:
    """The conditions with each verdict in the place of its type."""
    told = list(conditions)
    for type_, verdict in verdicts.items():
        told = with_condition(told, decided(type_, verdict, generation=generation, now=now))
    return told
