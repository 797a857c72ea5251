"""Results of admission rules, the error that contains them, and rules that several kinds share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from datum_compute.api.errors import Cause, Invalid
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.meta.timestamps import normalize_micro_time, normalize_time


@dataclass(frozen=True, slots=True)
class AdmissionWarning:
    """A text that the response contains. The write is stored."""

    text: str


Finding = Cause | AdmissionWarning


def invalid(kind: KindInfo[Any], name: str, causes: Sequence[Cause]) -> Invalid:
    """Return the error with all causes, in the form of kube-apiserver."""
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    listed = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    shown = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    message = f'{qualified} "{name}" is invalid: {shown}'
    return Invalid(message, name=name, group=kind.group, kind=kind.kind, causes=causes)


# --- Suggestions for unknown names


_NAMES_MAX = 8
_LENGTH_MAX = 64  # comparing longer names is slow, and existing names are shorter


def suggest_names(name: str, existing: Iterable[str]) -> str:
    """Return the most similar names, else some of the existing ones, else an empty string."""
    names = sorted(existing)
    near = get_close_matches(name[:_LENGTH_MAX], names, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = ", ..." if len(names) > _NAMES_MAX else ""
    return f"there are: {', '.join(names[:_NAMES_MAX])}{more}" if names else ""


# --- Normal form of times: UTC, with whole seconds or microseconds


Path = Sequence[str]


def normalize_times(
    *, seconds: Sequence[Path] = (), micro: Sequence[Path] = ()
) -> Callable[[JsonObject, JsonObject | None], JsonObject]:
    """Return a default that normalizes the times at these paths. The schema checks their syntax."""

    def rewrite(new: JsonObject, old: JsonObject | None) -> JsonObject:
        for path in seconds:
            new = _rewrite_at(new, path, normalize_time)
        for path in micro:
            new = _rewrite_at(new, path, normalize_micro_time)
        return new

    return rewrite


def _rewrite_at(obj: JsonObject, path: Path, rewrite: Callable[[str], str]) -> JsonObject:
    name, *rest = path
    value = obj.get(name)
    if rest:
        return {**obj, name: _rewrite_at(value, rest, rewrite)} if isinstance(value, dict) else obj
    return {**obj, name: rewrite(value)} if isinstance(value, str) else obj


# --- Phases


def phase_order_rule(
    field: str, phases: Sequence[str], phase_of: Callable[[JsonObject], str]
) -> Callable[[JsonObject, JsonObject | None], Iterable[Cause]]:
    """Return a rule: a phase stays, or changes to the next one in ``phases``."""

    def rule(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        if old is None:
            return
        before, now = phase_of(old), phase_of(new)
        following = phases[phases.index(before) + 1 :][:1]
        if now != before and now not in following:
            if following:
                why = f"the phase advances one step at a time: {following[0]} follows {before}"
            else:
                why = f"the phase cannot change any more: {before} is the last one"
            yield Cause.invalid(field, why, now)

    return rule
