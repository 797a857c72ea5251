"""Regular expressions of users, matched in time that grows with the text and not beyond.

Python backtracks: a pattern such as ``(a+)+$`` can keep it busy for ever, and with it every plane.
Patterns that cannot go wrong are left to Python; all others run here, as a set of states that
moves over the text once. What that cannot express (references back, looking around) Kubernetes
does not know either, and is refused when the pattern is compiled.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

_sre = importlib.import_module("re._parser")
_ops = importlib.import_module("re._constants")

STATES_MAX = 10_000
_MOVES_MAX = 20_000  # remembered moves, before they are forgotten
_SINGLE = (_ops.LITERAL, _ops.NOT_LITERAL, _ops.IN, _ops.ANY)
_REPEATS = (_ops.MAX_REPEAT, _ops.MIN_REPEAT)
_EDGES = (_ops.AT_BOUNDARY, _ops.AT_NON_BOUNDARY)
_OPTIONALS_MAX = 3
_TEXTS_MAX, _TEXT_LENGTH_MAX = 256, 256
_FLAGS = re.IGNORECASE | re.DOTALL | re.UNICODE | re.VERBOSE

Search = Callable[[str], bool]


def compiled_search(pattern: str) -> Search:
    """Whether the pattern is found in a text; raises re.error for one that cannot be had."""
    parsed = _sre.parse(pattern)
    if parsed.state.flags & ~_FLAGS:
        raise re.error("of the flags only i and s are supported")
    if _is_harmless(list(parsed)):
        # In a schema $ ends the text; Python's would also allow a line break after it.
        ends = pattern.endswith("$") and not pattern.endswith(r"\$")
        found = re.compile(pattern.removesuffix("$") + r"\Z" if ends else pattern)
        return lambda text: found.search(text) is not None
    return _remembering(_Machine(parsed).search)


def _remembering(search: Search) -> Search:
    """Images, types and hashes are the same few short texts in many objects."""
    known = lru_cache(maxsize=_TEXTS_MAX)(search)
    return lambda text: known(text) if len(text) <= _TEXT_LENGTH_MAX else search(text)


def _is_harmless(items: list[Any]) -> bool:
    """Begins at the begin, and repeats at most one thing, which is a single character."""
    if not items or items[0] not in (
        (_ops.AT, _ops.AT_BEGINNING),
        (_ops.AT, _ops.AT_BEGINNING_STRING),
    ):
        return False
    repeats = list(_repeats(items))
    optional = sum(1 for most, _ in repeats if most <= 1)
    longer = [body for most, body in repeats if most > 1]
    return (
        optional <= _OPTIONALS_MAX
        and len(longer) <= 1
        and all(len(body) == 1 and body[0][0] in _SINGLE for body in longer)
    )


def _repeats(items: Any) -> Iterator[tuple[int, list[Any]]]:
    for operation, argument in items:
        if operation in _REPEATS:
            yield int(argument[1]), list(argument[2])
            yield from _repeats(argument[2])
        elif operation is _ops.SUBPATTERN:
            yield from _repeats(argument[3])
        elif operation is _ops.BRANCH:
            for branch in argument[1]:
                yield from _repeats(branch)
        elif operation not in (*_SINGLE, _ops.AT):
            yield 2, []  # not known here: let the machine say what it thinks of it


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the text the machine stands, as far as a pattern can ask."""

    before: str  # the characters on both sides; empty at the ends
    after: str

    def holds(self, at: Any) -> bool:
        if at in (_ops.AT_BEGINNING, _ops.AT_BEGINNING_STRING):
            return not self.before
        if at in (_ops.AT_END, _ops.AT_END_STRING):
            return not self.after
        if at in _EDGES:
            edge = _is_word(self.before) is not _is_word(self.after)
            return edge is (at is _ops.AT_BOUNDARY)
        raise re.error("an anchor that is not supported")


@dataclass(slots=True)
class _State:
    """Consumes a character, or asks about the place, or does nothing; then goes on."""

    takes: Callable[[str], bool] | None = None
    asks: Any = None
    next: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Crowd:
    """States the machine is in together, and where it was seen to go from there."""

    alive: frozenset[int]
    found: bool
    moves: dict[str, _Crowd] = field(default_factory=dict)  # by what was looked at
    ends: dict[str, _Crowd] = field(default_factory=dict)  # over the last character


class _Machine:
    """A crowd of states moves over the text. Every move is worked out once and remembered, so a
    text of known characters costs one look-up for each of them."""

    def __init__(self, parsed: Any) -> None:
        self._ignores_case = bool(parsed.state.flags & re.IGNORECASE)
        self._any = bool(parsed.state.flags & re.DOTALL)
        self._states: list[_State] = []
        first = self._state()
        self._first, self._last = first, self._state()
        self._link(self._sequence(parsed, first), self._last)
        self._looks_ahead = any(state.asks in _EDGES for state in self._states)
        self._moves = 0
        self._crowds: dict[frozenset[int], _Crowd] = {}
        self._nobody = _Crowd(frozenset(), found=False)

    def search(self, text: str) -> bool:
        text = text.lower() if self._ignores_case else text
        if not text:
            return self._moved(self._nobody, _Place("", "")).found
        crowd = self._nobody.moves.get(text[0])
        if crowd is None:
            crowd = self._moved(self._nobody, _Place("", text[0]))
            self._nobody.moves[text[0]] = crowd
        for around in self._inner_places(text):
            if crowd.found:
                return True
            known = crowd.moves.get(around)
            if known is None:
                known = self._moved(crowd, _Place(around[0], around[-1]))
                crowd.moves[around] = known
            crowd = known
        last = crowd.ends.get(text[-1])
        if last is None:
            last = crowd.ends[text[-1]] = self._moved(crowd, _Place(text[-1], ""))
        return crowd.found or last.found

    def _inner_places(self, text: str) -> Iterable[str]:
        """What is asked at each place between two characters: mostly the one before it only, for
        then it does not matter which one comes after."""
        if not self._looks_ahead:
            return text[:-1]
        return (text[at : at + 2] for at in range(len(text) - 1))

    def _moved(self, crowd: _Crowd, place: _Place) -> _Crowd:
        """Over the character before the place, then as far as the place lets it."""
        self._moves += 1
        if self._moves > _MOVES_MAX:
            self._forget()
        moved = [n for s in crowd.alive for n in self._taken(s, place.before)]
        alive = self._closed([self._first, *moved], place)
        known = self._crowds.get(alive)
        if known is None:
            known = self._crowds[alive] = _Crowd(alive, self._last in alive)
        return known

    def _forget(self) -> None:
        for crowd in (self._nobody, *self._crowds.values()):
            crowd.moves.clear()
            crowd.ends.clear()
        self._crowds.clear()
        self._moves = 0

    def _taken(self, state: int, character: str) -> list[int]:
        found = self._states[state]
        return found.next if found.takes is not None and found.takes(character) else []

    def _closed(self, states: list[int], place: _Place) -> frozenset[int]:
        seen: set[int] = set()
        while states:
            state = states.pop()
            found = self._states[state]
            if state in seen or (found.asks is not None and not place.holds(found.asks)):
                continue
            seen.add(state)
            if found.takes is None:
                states.extend(found.next)
        return frozenset(seen)

    # --- building

    def _state(self, **what: Any) -> int:
        if len(self._states) >= STATES_MAX:
            raise re.error("the pattern is too large once its repetitions are written out")
        self._states.append(_State(**what))
        return len(self._states) - 1

    def _link(self, start: int, end: int) -> int:
        self._states[start].next.append(end)
        return end

    def _sequence(self, items: Any, start: int) -> int:
        """States for the items one after the other; returns where they end."""
        for operation, argument in items:
            start = self._item(operation, argument, start)
        return start

    def _item(self, operation: Any, argument: Any, start: int) -> int:
        if operation in _SINGLE:
            takes = self._link(start, self._state(takes=self._matcher(operation, argument)))
            return self._link(takes, self._state())
        if operation is _ops.AT:
            return self._link(self._link(start, self._state(asks=argument)), self._state())
        if operation is _ops.SUBPATTERN:
            _, added, removed, items = argument
            if added or removed:
                raise re.error("flags inside a pattern are not supported")
            return self._sequence(items, start)
        if operation is _ops.BRANCH:
            end = self._state()
            for branch in argument[1]:
                self._link(self._sequence(branch, self._link(start, self._state())), end)
            return end
        if operation in _REPEATS:
            least, most, items = argument
            return self._repeated(least, most, items, start)
        raise re.error(f"{str(operation).lower()} is not supported")

    def _repeated(self, least: int, most: Any, items: Any, start: int) -> int:
        for _ in range(least):
            start = self._sequence(items, start)
        end = self._state()
        self._link(start, end)
        if most is _ops.MAXREPEAT:
            again = self._link(start, self._state())
            self._link(self._sequence(items, again), again)
            self._link(again, end)
            return end
        for _ in range(int(most) - least):
            start = self._sequence(items, start)
            self._link(start, end)
        return end

    def _matcher(self, operation: Any, argument: Any) -> Callable[[str], bool]:
        if operation is _ops.ANY:
            return (lambda c: True) if self._any else (lambda c: c != "\n")
        if operation is _ops.IN:
            return _character_class(argument, self._ignores_case)
        literal = chr(argument).lower() if self._ignores_case else chr(argument)
        if operation is _ops.LITERAL:
            return lambda c: c == literal
        return lambda c: c != literal


def _character_class(items: Any, ignores_case: bool) -> Callable[[str], bool]:
    """Python's own matcher for one character: it cannot backtrack."""
    negative = items[0][0] is _ops.NEGATE
    tests = [_class_item(*item) for item in (items[1:] if negative else items)]

    def matches(character: str) -> bool:
        both = (character, character.upper()) if ignores_case else (character,)
        return any(test(c) for test in tests for c in both) is not negative

    return matches


def _class_item(operation: Any, argument: Any) -> Callable[[str], bool]:
    if operation is _ops.LITERAL:
        return lambda c: ord(c) == argument
    if operation is _ops.RANGE:
        low, high = argument
        return lambda c: low <= ord(c) <= high
    match argument:
        case _ops.CATEGORY_DIGIT:
            return lambda c: c in "0123456789"
        case _ops.CATEGORY_NOT_DIGIT:
            return lambda c: c not in "0123456789"
        case _ops.CATEGORY_SPACE:
            return lambda c: c in "\t\n\f\r "
        case _ops.CATEGORY_NOT_SPACE:
            return lambda c: c not in "\t\n\f\r "
        case _ops.CATEGORY_WORD:
            return _is_word
        case _:
            return lambda c: not _is_word(c)


def _is_word(character: str) -> bool:
    return bool(character) and character.isascii() and (character.isalnum() or character == "_")
