"""Set several conditions of an object at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from datum_compute.api.conditions import Condition, Verdict, decided, with_condition


def with_verdicts(
    conditions: Sequence[Condition], verdicts: Mapping[str, Verdict], *, generation: int, now: str
) -> list[Condition]:
    """The conditions with one for each verdict, by condition type."""
    updated = list(conditions)
    for type_, verdict in verdicts.items():
        updated = with_condition(updated, decided(type_, verdict, generation=generation, now=now))
    return updated
