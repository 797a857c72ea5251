"""Phases that only go forward, one step at a time, whatever kind they belong to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject


def one_step_forward(
    field: str, phases: Sequence[str], phase_of: Callable[[JsonObject], str]
) -> Callable[[JsonObject, JsonObject | None], Iterable[Cause]]:
    """The rule that ``field`` stays, or goes to the phase that follows in ``phases``."""

    def rule(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        if old is None:
            return
        before, now = phase_of(old), phase_of(new)
        following = phases[phases.index(before) + 1 :][:1]
        if now != before and now not in following:
            possible = f"{before} or {following[0]}" if following else f"{before}, which is the end"
            why = f"the phase goes one step forward at a time; from {before} it can be {possible}"
            yield Cause(field, "FieldValueInvalid", f'Invalid value: "{now}": {why}')

    return rule
