"""What a rule may find: a cause to refuse the write, or something worth a warning."""

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
    """The write is stored, and the caller is told."""

    text: str


Finding = Cause | AdmissionWarning


# --- The error that lists everything that is wrong with an object, in the words clients know


def invalid(kind: KindInfo[Any], name: str, causes: Sequence[Cause]) -> Invalid:
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    listed = [
        f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes
    ]
    shown = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    message = f'{qualified} "{name}" is invalid: {shown}'
    return Invalid(message, name=name, group=kind.group, kind=kind.kind, causes=causes)


# --- What somebody may have meant who wrote a name that there is not


_NAMES_MAX = 8
_LENGTH_MAX = 64  # comparing longer ones takes long, and nobody means one of ours by them


def hint(asked: str, offered: Iterable[str]) -> str:
    """The nearest names first, else what there is; empty if there is nothing."""
    names = sorted(offered)
    near = get_close_matches(asked[:_LENGTH_MAX], names, n=3, cutoff=0.6)
    if near:
        return f"did you mean {' or '.join(near)}?"
    more = ", ..." if len(names) > _NAMES_MAX else ""
    return f"there are: {', '.join(names[:_NAMES_MAX])}{more}" if names else ""


# --- Times as every reader expects them: UTC, and whole seconds or six digits of one


Path = Sequence[str]


def with_times(
    *, seconds: Sequence[Path] = (), micro: Sequence[Path] = ()
) -> Callable[[JsonObject, JsonObject | None], JsonObject]:
    """A default that rewrites the times at these paths; the schema has checked their form."""

    def rewrite(new: JsonObject, old: JsonObject | None) -> JsonObject:
        for path in seconds:
            new = _rewritten(new, path, normalize_time)
        for path in micro:
            new = _rewritten(new, path, normalize_micro_time)
        return new

    return rewrite


def _rewritten(obj: JsonObject, path: Path, rewrite: Callable[[str], str]) -> JsonObject:
    name, *rest = path
    value = obj.get(name)
    if rest:
        return {**obj, name: _rewritten(value, rest, rewrite)} if isinstance(value, dict) else obj
    return {**obj, name: rewrite(value)} if isinstance(value, str) else obj


# --- Phases that only go forward, one step at a time, whatever kind they belong to


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


# --- Names of objects that become part of something with a shorter limit


def name_at_most(
    length: int, because: str
) -> Callable[[JsonObject, JsonObject | None], Iterable[Cause]]:
    """The rule that a new object's name has at most ``length`` characters."""

    def rule(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
        name = new["metadata"].get("name", "")
        if old is None and len(name) > length:
            why = f"must be no more than {length} characters, because {because}"
            yield Cause("metadata.name", "FieldValueInvalid", f'Invalid value: "{name}": {why}')

    return rule
