"""Regular expressions of users, matched in time that grows with the text and not beyond.

Python backtracks: a pattern such as ``(a+)+$`` can keep it busy for ever, and with it every plane.
Patterns that cannot backtrack much are left to Python; all others run here, as a set of states that
moves over the text once. What that cannot express (back references, look-around) Kubernetes does
not support either, and is refused when the pattern is compiled.

A set of states is one integer with a bit for each character of the pattern, so that a move costs a
few operations on integers and not one for each state. Moves that were computed are cached; all
caches together have a limit in bytes. Every match spends steps (see ``checkreport.Work``).
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from datum_compute.api.checkreport import Work

_sre = importlib.import_module("re._parser")
_ops = importlib.import_module("re._constants")

LENGTH_MAX = 4096
STATES_MAX = 5000
EDGES_MAX = 20_000
CACHE_BYTES_MAX = 16 * 1024 * 1024  # of the moves of all patterns
_MOVE_BYTES, _CROWD_BYTES = 120, 500
_COMPILED_STATES_MAX = 50_000  # of all patterns that are kept
_SINGLE = (_ops.LITERAL, _ops.NOT_LITERAL, _ops.IN, _ops.ANY)
_REPEATS = (_ops.MAX_REPEAT, _ops.MIN_REPEAT)
_EDGES = (_ops.AT_BOUNDARY, _ops.AT_NON_BOUNDARY)
_WAYS_MAX = 8  # in which Python may try to match an optional part or a branch
_TEXTS_MAX, _TEXT_LENGTH_MAX = 4096, 256
_CACHED_CHARACTERS_OF_A_STEP = 4
_STEPS_OF_A_MOVE = 20  # that is not cached
_STEPS_OF_A_CLASS = 6  # for each range in it, at the first sight of a character
_FLAGS = re.IGNORECASE | re.DOTALL | re.UNICODE | re.VERBOSE


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """Whether a pattern is found in a text."""

    find: Callable[[str, Work, str], bool]  # the text, the work to spend, the field of the text
    states: int  # what the pattern costs to compile and to keep
    character_steps: int  # what a character of a text costs at most

    def __call__(self, text: str, work: Work | None = None, path: str = "") -> bool:
        return self.find(text, work or Work(), path)


def compiled_search(pattern: str) -> Search:
    """Raises re.error for a pattern that is not supported or too costly."""
    return _COMPILED.search_of(pattern)


class _CompiledPatterns:
    """The patterns in use: the same few in many fields. Limited by the sum of their states."""

    def __init__(self) -> None:
        self._searches: dict[str, Search] = {}
        self.states = 0

    def search_of(self, pattern: str) -> Search:
        known = self._searches.get(pattern)
        if known is None:
            known = _new_search(pattern)
            self.states += known.states
            if self.states > _COMPILED_STATES_MAX:
                self._searches.clear()
                self.states = known.states
            self._searches[pattern] = known
        return known


_COMPILED = _CompiledPatterns()


def _new_search(pattern: str) -> Search:
    if len(pattern) > LENGTH_MAX:
        raise re.error(f"the pattern has {len(pattern)} characters, it may have {LENGTH_MAX}")
    parsed = _sre.parse(pattern)
    if parsed.state.flags & ~_FLAGS:
        raise re.error("of the flags only i and s are supported")
    if _is_harmless(list(parsed)):
        # In a schema $ ends the text; Python's would also allow a line break after it.
        ends = pattern.endswith("$") and not pattern.endswith(r"\$")
        found = re.compile(pattern.removesuffix("$") + r"\Z" if ends else pattern)
        return Search(_searching(found), len(pattern) + 1, 1)
    machine = _Machine(parsed)
    return Search(_remembering(pattern, machine), len(machine), machine.character_steps)


def _searching(pattern: re.Pattern[str]) -> Callable[[str, Work, str], bool]:
    def find(text: str, work: Work, path: str) -> bool:
        if len(text) > _TEXT_LENGTH_MAX:
            work.spend(_WAYS_MAX * len(text) // 64, path)
        return pattern.search(text) is not None

    return find


def _remembering(pattern: str, machine: _Machine) -> Callable[[str, Work, str], bool]:
    """Images, types and hashes are the same few short texts in many objects."""

    def find(text: str, work: Work, path: str) -> bool:
        if len(text) > _TEXT_LENGTH_MAX:
            return machine.search(text, work, path)
        known = _SHORT_TEXTS.get((pattern, text))
        if known is None:
            known = machine.search(text, work, path)
            if len(_SHORT_TEXTS) >= _TEXTS_MAX:
                _SHORT_TEXTS.clear()
            _SHORT_TEXTS[pattern, text] = known
        return known

    return find


_SHORT_TEXTS: dict[tuple[str, str], bool] = {}  # for all patterns together


def _is_harmless(items: list[Any]) -> bool:
    """Begins at the begin, and repeats at most one thing, which is a single character. Python tries
    few combinations of its optional parts and branches."""
    if not items or items[0] not in (
        (_ops.AT, _ops.AT_BEGINNING),
        (_ops.AT, _ops.AT_BEGINNING_STRING),
    ):
        return False
    repeats = list(_repeats(items))
    ways = 1
    for most, body in repeats:
        if most <= 1:
            ways *= 2
        elif len(body) != 1 or body[0][0] not in _SINGLE:
            return False
    for branches in _branches(items):
        ways *= branches
    return ways <= _WAYS_MAX and sum(1 for most, _ in repeats if most > 1) <= 1


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
            yield 2, []  # not known here: the machine decides whether it is supported


def _branches(items: Any) -> Iterator[int]:
    """How many branches each alternative has, at any depth."""
    for operation, argument in items:
        if operation in _REPEATS:
            yield from _branches(argument[2])
        elif operation is _ops.SUBPATTERN:
            yield from _branches(argument[3])
        elif operation is _ops.BRANCH:
            yield len(argument[1])
            for branch in argument[1]:
                yield from _branches(branch)


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
    """Consumes a character (``bit`` says which one of the pattern), or asks about the place, or
    does nothing; then goes on."""

    bit: int = -1
    asks: Any = None
    next: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Crowd:
    """States the machine is in together, and where it was seen to go from there."""

    alive: int
    found: bool
    moves: dict[str, _Crowd] = field(default_factory=dict)  # by the character, or it and the next
    ends: dict[str, _Crowd] = field(default_factory=dict)  # over the last character


@dataclass(frozen=True, slots=True)
class _Moves:
    """Where characters lead at one kind of place: for each distance, the bits that move by it."""

    entry: int  # where a match that begins here stands
    distances: tuple[tuple[int, int], ...]

    def of(self, taken: int) -> int:
        moved = self.entry
        for distance, bits in self.distances:
            if found := taken & bits:
                moved |= found << distance if distance >= 0 else found >> -distance
        return moved


class _Machine:
    """A crowd of states moves over the text. Every move is computed once and cached, so a text of
    known characters costs one look-up for each of them."""

    def __init__(self, parsed: Any) -> None:
        self._ignores_case = bool(parsed.state.flags & re.IGNORECASE)
        self._any = bool(parsed.state.flags & re.DOTALL)
        self._states: list[_State] = []
        self._consuming: list[int] = []  # the state of each bit
        self._literals: dict[str, int] = {}  # the bits of each
        self._classes: dict[int, tuple[Callable[[str], bool], int]] = {}
        self._class_items = 1
        first = self._state()
        last = self._link(self._sequence(parsed, first), self._state())
        self._first, self._states[last].bit = first, len(self._consuming)
        self._consuming.append(last)
        self._accept = 1 << self._states[last].bit
        self._looks_ahead = any(state.asks in _EDGES for state in self._states)
        distances = self._moves_at(None).distances  # raises for a pattern that is too costly
        size = 1 + len(self._consuming) // 1024
        self.character_steps = _STEPS_OF_A_MOVE + len(distances) * size // 2
        self._tables: dict[tuple[int, int], _Moves] = {}
        self._taking: dict[str, int] = {}
        self._crowds: dict[int, _Crowd] = {}
        self._nobody = _Crowd(0, found=False)
        _CACHES.machines.add(self)

    def __len__(self) -> int:
        return len(self._states)

    def search(self, text: str, work: Work, path: str) -> bool:
        text = text.lower() if self._ignores_case else text
        work.spend(1 + len(text) // _CACHED_CHARACTERS_OF_A_STEP, path)
        if not text:
            return self._moved(self._nobody, "", "").found
        crowd = self._nobody.moves.get(text[0])
        if crowd is None:
            crowd = self._moved(self._nobody, "", text[0])
            self._nobody.moves[text[0]] = crowd
        for around in self._inner_places(text):
            if crowd.found:
                return True
            known = crowd.moves.get(around)
            if known is None:
                known = self._computed(crowd, around[0], around[-1], work, path)
                crowd.moves[around] = known
            crowd = known
        if crowd.found:
            return True
        last = crowd.ends.get(text[-1])
        if last is None:
            last = self._computed(crowd, text[-1], "", work, path)
            crowd.ends[text[-1]] = last
        return last.found

    def _inner_places(self, text: str) -> Iterable[str]:
        """What is asked at each place between two characters: mostly the one before it only, for
        then it does not matter which one comes after."""
        if not self._looks_ahead:
            return text[:-1]
        return (text[at : at + 2] for at in range(len(text) - 1))

    def _computed(self, crowd: _Crowd, before: str, after: str, work: Work, path: str) -> _Crowd:
        known = before in self._taking
        work.spend(
            self.character_steps + (0 if known else _STEPS_OF_A_CLASS * self._class_items), path
        )
        return self._moved(crowd, before, after)

    def _moved(self, crowd: _Crowd, before: str, after: str) -> _Crowd:
        """Over the character ``before``, then as far as the place between both lets it."""
        _CACHES.spend(_MOVE_BYTES)
        taken = crowd.alive & self._taken(before) if before else 0
        alive = self._table(before, after).of(taken)
        known = self._crowds.get(alive)
        if known is None:
            _CACHES.spend(_CROWD_BYTES + len(self._consuming) // 4)
            known = self._crowds[alive] = _Crowd(alive, bool(alive & self._accept))
        return known

    def forget(self) -> None:
        """Drop what was cached. A search that runs goes on with the crowd that it has."""
        for crowd in (self._nobody, *self._crowds.values()):
            crowd.moves.clear()
            crowd.ends.clear()
        self._crowds.clear()
        self._taking.clear()

    def _taken(self, character: str) -> int:
        """The bits that take a character."""
        known = self._taking.get(character)
        if known is None:
            known = self._literals.get(character, 0)
            for matches, bits in self._classes.values():
                if matches(character):
                    known |= bits
            _CACHES.spend(_MOVE_BYTES + len(self._consuming) // 8)
            self._taking[character] = known
        return known

    def _table(self, before: str, after: str) -> _Moves:
        """Places at which all questions of a pattern have the same answers share their moves."""
        kind = (self._side(before), self._side(after))
        known = self._tables.get(kind)
        if known is None:
            known = self._tables[kind] = self._moves_at(_Place(before, after))
        return known

    def _side(self, character: str) -> int:
        if not character:
            return 0
        return 2 if self._looks_ahead and _is_word(character) else 1

    def _moves_at(self, place: _Place | None) -> _Moves:
        """``None`` is a place where every question is answered with yes."""
        entry, left = self._closed([self._first], place, EDGES_MAX)
        by_distance: dict[int, int] = {}
        for bit, state in enumerate(self._consuming):
            reached, left = self._closed(list(self._states[state].next), place, left)
            for other in reached:
                by_distance[other - bit] = by_distance.get(other - bit, 0) | 1 << bit
        return _Moves(sum(1 << bit for bit in entry), tuple(by_distance.items()))

    def _closed(self, states: list[int], place: _Place | None, left: int) -> tuple[set[int], int]:
        """The bits that are reached without a character, and what is left of EDGES_MAX."""
        seen: set[int] = set()
        bits: set[int] = set()
        while states:
            state = states.pop()
            found = self._states[state]
            if state in seen:
                continue
            seen.add(state)
            left -= 1
            if left < 0:
                raise re.error(
                    "the pattern is too costly: its optional parts can be combined in too many "
                    "ways; use fewer repetitions inside of repetitions"
                )
            if found.asks is not None and place is not None and not place.holds(found.asks):
                continue
            if found.bit >= 0:
                bits.add(found.bit)
            else:
                states.extend(found.next)
        return bits, left

    # --- building

    def _state(self, **what: Any) -> int:
        if len(self._states) >= STATES_MAX:
            raise re.error(
                f"the pattern is too large: it has more than {STATES_MAX} states once its "
                "repetitions are written out; use maxLength to limit the length"
            )
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
            bit = len(self._consuming)
            state = self._link(start, self._state(bit=bit))
            self._consuming.append(state)
            self._add_matcher(operation, argument, 1 << bit)
            return self._link(state, self._state())
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
        if not items and most is not _ops.MAXREPEAT:
            return start
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

    def _add_matcher(self, operation: Any, argument: Any, bit: int) -> None:
        """A literal is found by its character. A class is kept once however often it repeats."""
        if operation is _ops.LITERAL:
            literal = chr(argument).lower() if self._ignores_case else chr(argument)
            self._literals[literal] = self._literals.get(literal, 0) | bit
            return
        key = -1 if operation is _ops.ANY else id(argument)
        matcher, bits = self._classes.get(key, (None, 0))
        if matcher is None:
            matcher = self._matcher(operation, argument)
            self._class_items += len(argument) if operation is _ops.IN else 1
        self._classes[key] = (matcher, bits | bit)

    def _matcher(self, operation: Any, argument: Any) -> Callable[[str], bool]:
        if operation is _ops.ANY:
            return (lambda c: True) if self._any else (lambda c: c != "\n")
        if operation is _ops.IN:
            return _character_class(argument, self._ignores_case)
        literal = chr(argument).lower() if self._ignores_case else chr(argument)
        return lambda c: c != literal


class _Caches:
    """The caches of all machines together. They are emptied when they are too large: patterns and
    texts of users fill them, and no user may take more than others by having more patterns."""

    def __init__(self) -> None:
        self.machines: WeakSet[_Machine] = WeakSet()
        self.bytes_used = 0

    def spend(self, size_bytes: int) -> None:
        self.bytes_used += size_bytes
        if self.bytes_used > CACHE_BYTES_MAX:
            self.bytes_used = 0
            for machine in self.machines:
                machine.forget()


_CACHES = _Caches()


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
