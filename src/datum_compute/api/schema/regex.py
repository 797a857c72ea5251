"""Regular expressions of users, matched in time that is linear in the length of the text.

Python's ``re`` backtracks: a pattern such as ``(a+)+$`` can block the event loop, and with it every
plane. Patterns that can backtrack only a little run in ``re``. All others run here, as a
nondeterministic finite automaton that reads the text once. An automaton cannot express back
references and look-around. Kubernetes does not support them either; compiling them is an error.

A set of states is one integer with a bit for each character of the pattern, so that a transition
costs a few integer operations and not one operation for each state. Transitions are cached, and
all caches together have a limit in bytes. Every match spends steps of a
``report.CheckBudget``.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet

from datum_compute.api.schema.report import CheckBudget
from datum_compute.api.schema.unicode_categories import replace_categories

_sre = importlib.import_module("re._parser")
_ops = importlib.import_module("re._constants")

LENGTH_MAX = 4096
STATES_MAX = 5000
TRANSITIONS_MAX = 20_000  # of one pattern
CACHE_BYTES_MAX = 16 * 1024 * 1024  # cached transitions of all patterns
_TRANSITION_BYTES, _STATE_SET_BYTES = 120, 500
_COMPILED_STATES_MAX = 50_000  # of all compiled patterns
_SINGLE = (_ops.LITERAL, _ops.NOT_LITERAL, _ops.IN, _ops.ANY)
_REPEATS = (_ops.MAX_REPEAT, _ops.MIN_REPEAT)
_WORD_BOUNDARIES = (_ops.AT_BOUNDARY, _ops.AT_NON_BOUNDARY)
_COMBINATIONS_MAX = 8  # of optional parts and branches that ``re`` may try for one match
_TEXTS_MAX, _TEXT_LENGTH_MAX = 4096, 256
_CACHED_CHARACTERS_PER_STEP = 4
_STEPS_PER_NEW_TRANSITION = 20  # at least; a cached one costs less
_STEPS_PER_CLASS_RANGE = 6  # when a character is matched for the first time
_FLAGS = re.IGNORECASE | re.DOTALL | re.UNICODE | re.VERBOSE


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """A compiled pattern. Calling it returns True if the text contains a match."""

    # Takes the text, the budget to spend and the field of the text.
    find: Callable[[str, CheckBudget, str], bool]
    states: int  # cost of compiling and caching the pattern
    character_steps: int  # highest cost of one character of a text

    def __call__(self, text: str, budget: CheckBudget | None = None, path: str = "") -> bool:
        return self.find(text, budget or CheckBudget(), path)


def compile_search(pattern: str) -> Search:
    """Return the compiled pattern. Raises re.error if it is not supported or too costly."""
    return _COMPILED.get(pattern)


class _CompiledPatterns:
    """Cache of compiled patterns, limited by the sum of their states."""

    def __init__(self) -> None:
        self._searches: dict[str, Search] = {}
        self.states = 0

    def get(self, pattern: str) -> Search:
        cached = self._searches.get(pattern)
        if cached is None:
            cached = _compile(pattern)
            self.states += cached.states
            if self.states > _COMPILED_STATES_MAX:
                self._searches.clear()
                self.states = cached.states
            self._searches[pattern] = cached
        return cached


_COMPILED = _CompiledPatterns()


def _compile(pattern: str) -> Search:
    if len(pattern) > LENGTH_MAX:
        raise re.error(f"the pattern has {len(pattern)} characters, it may have {LENGTH_MAX}")
    text, categories = replace_categories(pattern)
    parsed = _sre.parse(text)
    if parsed.state.flags & ~_FLAGS:
        raise re.error("of the flags only i and s are supported")
    if not categories and _is_safe_for_python(list(parsed)):
        # In a schema, $ matches only at the end of the text; in Python also before a last newline.
        is_anchored = pattern.endswith("$") and not pattern.endswith(r"\$")
        found = re.compile(pattern.removesuffix("$") + r"\Z" if is_anchored else pattern)
        return Search(_python_find(found), len(pattern) + 1, 1)
    automaton = _Automaton(parsed, categories)
    return Search(_cached_find(pattern, automaton), len(automaton), automaton.character_steps)


def _python_find(pattern: re.Pattern[str]) -> Callable[[str, CheckBudget, str], bool]:
    def find(text: str, budget: CheckBudget, path: str) -> bool:
        if len(text) > _TEXT_LENGTH_MAX:
            budget.spend(_COMBINATIONS_MAX * len(text) // 64, path)
        return pattern.search(text) is not None

    return find


def _cached_find(pattern: str, automaton: _Automaton) -> Callable[[str, CheckBudget, str], bool]:
    """Cache the results of short texts: many objects have the same images, types and hashes."""

    def find(text: str, budget: CheckBudget, path: str) -> bool:
        if len(text) > _TEXT_LENGTH_MAX:
            return automaton.search(text, budget, path)
        cached = _SHORT_TEXTS.get((pattern, text))
        if cached is None:
            cached = automaton.search(text, budget, path)
            if len(_SHORT_TEXTS) >= _TEXTS_MAX:
                _SHORT_TEXTS.clear()
            _SHORT_TEXTS[pattern, text] = cached
        return cached

    return find


_SHORT_TEXTS: dict[tuple[str, str], bool] = {}  # for all patterns together


def _is_safe_for_python(items: list[Any]) -> bool:
    """Return True if ``re`` matches the pattern without much backtracking.

    The pattern starts with ^, repeats at most one item, which matches a single character, and has
    few combinations of optional parts and branches.
    """
    if not items or items[0] not in (
        (_ops.AT, _ops.AT_BEGINNING),
        (_ops.AT, _ops.AT_BEGINNING_STRING),
    ):
        return False
    repeats = list(_repeats(items))
    combinations = 1
    for most, body in repeats:
        if most <= 1:
            combinations *= 2
        elif len(body) != 1 or body[0][0] not in _SINGLE:
            return False
    for branches in _branches(items):
        combinations *= branches
    return combinations <= _COMBINATIONS_MAX and sum(1 for most, _ in repeats if most > 1) <= 1


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
            yield 2, []  # unknown operation: the automaton decides whether it is supported


def _branches(items: Any) -> Iterator[int]:
    """Yield the number of branches of each alternative, at any depth."""
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
class _Position:
    """A position between two characters of the text, for assertions such as ^ and \\b."""

    before: str  # empty at the start of the text
    after: str  # empty at the end of the text

    def satisfies(self, at: Any) -> bool:
        if at in (_ops.AT_BEGINNING, _ops.AT_BEGINNING_STRING):
            return not self.before
        if at in (_ops.AT_END, _ops.AT_END_STRING):
            return not self.after
        if at in _WORD_BOUNDARIES:
            edge = _is_word(self.before) is not _is_word(self.after)
            return edge is (at is _ops.AT_BOUNDARY)
        raise re.error("the pattern has an anchor that is not supported; use ^, $ or \\b")


@dataclass(slots=True)
class _State:
    """A state that consumes a character (``bit`` is its number), checks an assertion, or does
    neither, and continues with ``next``."""

    bit: int = -1
    assertion: Any = None
    next: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _StateSet:
    """A set of states that the automaton is in at the same time, with its cached transitions."""

    bits: int
    is_match: bool
    # By the character that is consumed; with word boundaries by that and the following one.
    next_states: dict[str, _StateSet] = field(default_factory=dict)
    next_at_end: dict[str, _StateSet] = field(default_factory=dict)  # by the last character


@dataclass(frozen=True, slots=True)
class _Transitions:
    """Transitions at one kind of position: for each distance, the bits that move by it."""

    start_bits: int  # of a match that begins at the position
    distances: tuple[tuple[int, int], ...]

    def apply(self, matched: int) -> int:
        moved = self.start_bits
        for distance, bits in self.distances:
            if found := matched & bits:
                moved |= found << distance if distance >= 0 else found >> -distance
        return moved


class _Automaton:
    """Reads a text with a set of states. Each transition is computed once and cached, so that a
    character costs one look-up if its transition is cached. ``categories`` are the placeholders of
    Unicode categories in the pattern."""

    def __init__(
        self, parsed: Any, categories: Mapping[int, Callable[[str], bool]] | None = None
    ) -> None:
        self._categories = categories or {}
        self._ignores_case = bool(parsed.state.flags & re.IGNORECASE)
        self._dot_matches_newline = bool(parsed.state.flags & re.DOTALL)
        self._states: list[_State] = []
        self._consuming: list[int] = []  # the state of each bit
        self._literals: dict[str, int] = {}  # bits by character
        self._classes: dict[int | str, tuple[Callable[[str], bool], int]] = {}
        self._class_ranges = 1
        first = self._add_state()
        last = self._link(self._add_sequence(parsed, first), self._add_state())
        self._first, self._states[last].bit = first, len(self._consuming)
        self._consuming.append(last)
        self._accept = 1 << self._states[last].bit
        self._has_word_boundaries = any(
            state.assertion in _WORD_BOUNDARIES for state in self._states
        )
        distances = self._build_transitions(
            None
        ).distances  # raises for a pattern that is too costly
        size = 1 + len(self._consuming) // 1024
        self.character_steps = _STEPS_PER_NEW_TRANSITION + len(distances) * size // 2
        self._transitions: dict[tuple[int, int], _Transitions] = {}
        self._bits_by_character: dict[str, int] = {}
        self._state_sets: dict[int, _StateSet] = {}
        self._no_states = _StateSet(0, is_match=False)
        _CACHES.automata.add(self)

    def __len__(self) -> int:
        return len(self._states)

    def search(self, text: str, budget: CheckBudget, path: str) -> bool:
        text = text.lower() if self._ignores_case else text
        budget.spend(1 + len(text) // _CACHED_CHARACTERS_PER_STEP, path)
        if not text:
            return self._next_states(self._no_states, "", "").is_match
        states = self._no_states.next_states.get(text[0])
        if states is None:
            states = self._next_states(self._no_states, "", text[0])
            self._no_states.next_states[text[0]] = states
        for around in self._inner_positions(text):
            if states.is_match:
                return True
            cached = states.next_states.get(around)
            if cached is None:
                cached = self._compute_next(states, around[0], around[-1], budget, path)
                states.next_states[around] = cached
            states = cached
        if states.is_match:
            return True
        last = states.next_at_end.get(text[-1])
        if last is None:
            last = self._compute_next(states, text[-1], "", budget, path)
            states.next_at_end[text[-1]] = last
        return last.is_match

    def _inner_positions(self, text: str) -> Iterable[str]:
        """Return the cache key of each position between two characters: the character before it,
        and with word boundaries in the pattern also the character after it."""
        if not self._has_word_boundaries:
            return text[:-1]
        return (text[at : at + 2] for at in range(len(text) - 1))

    def _compute_next(
        self, states: _StateSet, before: str, after: str, budget: CheckBudget, path: str
    ) -> _StateSet:
        cached = before in self._bits_by_character
        budget.spend(
            self.character_steps + (0 if cached else _STEPS_PER_CLASS_RANGE * self._class_ranges),
            path,
        )
        return self._next_states(states, before, after)

    def _next_states(self, states: _StateSet, before: str, after: str) -> _StateSet:
        """Consume ``before``, then follow the transitions of the position before ``after``."""
        _CACHES.spend(_TRANSITION_BYTES)
        matched = states.bits & self._matching_bits(before) if before else 0
        bits = self._transitions_between(before, after).apply(matched)
        cached = self._state_sets.get(bits)
        if cached is None:
            _CACHES.spend(_STATE_SET_BYTES + len(self._consuming) // 4)
            cached = self._state_sets[bits] = _StateSet(bits, bool(bits & self._accept))
        return cached

    def clear_cache(self) -> None:
        """Drop all cached transitions. A running search continues with its current states."""
        for states in (self._no_states, *self._state_sets.values()):
            states.next_states.clear()
            states.next_at_end.clear()
        self._state_sets.clear()
        self._bits_by_character.clear()

    def _matching_bits(self, character: str) -> int:
        """Return the bits of the states that match a character."""
        cached = self._bits_by_character.get(character)
        if cached is None:
            cached = self._literals.get(character, 0)
            for matches, bits in self._classes.values():
                if matches(character):
                    cached |= bits
            _CACHES.spend(_TRANSITION_BYTES + len(self._consuming) // 8)
            self._bits_by_character[character] = cached
        return cached

    def _transitions_between(self, before: str, after: str) -> _Transitions:
        """Return the transitions of a position. Positions with the same assertions share them."""
        kind = (self._character_kind(before), self._character_kind(after))
        cached = self._transitions.get(kind)
        if cached is None:
            cached = self._transitions[kind] = self._build_transitions(_Position(before, after))
        return cached

    def _character_kind(self, character: str) -> int:
        if not character:
            return 0
        return 2 if self._has_word_boundaries and _is_word(character) else 1

    def _build_transitions(self, position: _Position | None) -> _Transitions:
        """Return the transitions at a position. Without a position all assertions hold."""
        start, left = self._epsilon_closure([self._first], position, TRANSITIONS_MAX)
        by_distance: dict[int, int] = {}
        for bit, state in enumerate(self._consuming):
            reached, left = self._epsilon_closure(list(self._states[state].next), position, left)
            for other in reached:
                by_distance[other - bit] = by_distance.get(other - bit, 0) | 1 << bit
        return _Transitions(sum(1 << bit for bit in start), tuple(by_distance.items()))

    def _epsilon_closure(
        self, states: list[int], position: _Position | None, left: int
    ) -> tuple[set[int], int]:
        """Return the bits that are reached without a character, and the rest of TRANSITIONS_MAX."""
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
            if (
                found.assertion is not None
                and position is not None
                and not position.satisfies(found.assertion)
            ):
                continue
            if found.bit >= 0:
                bits.add(found.bit)
            else:
                states.extend(found.next)
        return bits, left

    # --- building

    def _add_state(self, **what: Any) -> int:
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

    def _add_sequence(self, items: Any, start: int) -> int:
        """Add states for the items, one after the other, and return the last state."""
        for operation, argument in items:
            start = self._add_item(operation, argument, start)
        return start

    def _add_item(self, operation: Any, argument: Any, start: int) -> int:
        if operation in _SINGLE:
            bit = len(self._consuming)
            state = self._link(start, self._add_state(bit=bit))
            self._consuming.append(state)
            self._add_matcher(operation, argument, 1 << bit)
            return self._link(state, self._add_state())
        if operation is _ops.AT:
            return self._link(
                self._link(start, self._add_state(assertion=argument)), self._add_state()
            )
        if operation is _ops.SUBPATTERN:
            _, added, removed, items = argument
            if added or removed:
                raise re.error("flags inside a pattern are not supported")
            return self._add_sequence(items, start)
        if operation is _ops.BRANCH:
            end = self._add_state()
            for branch in argument[1]:
                self._link(self._add_sequence(branch, self._link(start, self._add_state())), end)
            return end
        if operation in _REPEATS:
            least, most, items = argument
            return self._add_repeat(least, most, items, start)
        raise re.error(f"{str(operation).lower()} is not supported")

    def _add_repeat(self, least: int, most: Any, items: Any, start: int) -> int:
        if not items and most is not _ops.MAXREPEAT:
            return start
        for _ in range(least):
            start = self._add_sequence(items, start)
        end = self._add_state()
        self._link(start, end)
        if most is _ops.MAXREPEAT:
            again = self._link(start, self._add_state())
            self._link(self._add_sequence(items, again), again)
            self._link(again, end)
            return end
        for _ in range(int(most) - least):
            start = self._add_sequence(items, start)
            self._link(start, end)
        return end

    def _add_matcher(self, operation: Any, argument: Any, bit: int) -> None:
        """Index a literal by its character. Store a class once, even if the pattern repeats it."""
        if operation in (_ops.LITERAL, _ops.NOT_LITERAL) and argument in self._categories:
            negation = [(_ops.NEGATE, None)] if operation is _ops.NOT_LITERAL else []
            operation, argument = _ops.IN, [*negation, (_ops.LITERAL, argument)]
            self._add_class(repr(argument), operation, argument, bit)
            return
        if operation is _ops.LITERAL:
            literal = chr(argument).lower() if self._ignores_case else chr(argument)
            self._literals[literal] = self._literals.get(literal, 0) | bit
            return
        self._add_class(-1 if operation is _ops.ANY else id(argument), operation, argument, bit)

    def _add_class(self, key: int | str, operation: Any, argument: Any, bit: int) -> None:
        matcher, bits = self._classes.get(key, (None, 0))
        if matcher is None:
            matcher = self._matcher(operation, argument)
            self._class_ranges += len(argument) if operation is _ops.IN else 1
        self._classes[key] = (matcher, bits | bit)

    def _matcher(self, operation: Any, argument: Any) -> Callable[[str], bool]:
        if operation is _ops.ANY:
            return (lambda c: True) if self._dot_matches_newline else (lambda c: c != "\n")
        if operation is _ops.IN:
            return _character_class(argument, self._categories, self._ignores_case)
        literal = chr(argument).lower() if self._ignores_case else chr(argument)
        return lambda c: c != literal


class _Caches:
    """The size of the caches of all automata. Above the limit all caches are cleared, so that a
    user with many patterns does not occupy more memory."""

    def __init__(self) -> None:
        self.automata: WeakSet[_Automaton] = WeakSet()
        self.bytes_used = 0

    def spend(self, size_bytes: int) -> None:
        self.bytes_used += size_bytes
        if self.bytes_used > CACHE_BYTES_MAX:
            self.bytes_used = 0
            for automaton in self.automata:
                automaton.clear_cache()


_CACHES = _Caches()


def _character_class(
    items: Any, categories: Mapping[int, Callable[[str], bool]], ignores_case: bool
) -> Callable[[str], bool]:
    """Return a function that matches one character against a class such as ``[a-z]``."""
    negative = items[0][0] is _ops.NEGATE
    members = items[1:] if negative else items
    tests = [_class_item(operation, argument, categories) for operation, argument in members]

    def matches(character: str) -> bool:
        found = any(test(character) for test in tests)
        if ignores_case and not found:
            upper = character.upper()  # of one character it may be two
            found = len(upper) == 1 and any(test(upper) for test in tests)
        return found is not negative

    return matches


def _class_item(
    operation: Any, argument: Any, categories: Mapping[int, Callable[[str], bool]]
) -> Callable[[str], bool]:
    if operation is _ops.LITERAL:
        return categories.get(argument) or (lambda c: ord(c) == argument)
    if operation is _ops.RANGE:
        low, high = argument
        if high in categories:
            raise re.error(r"a range of characters cannot end with \p or \P")
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
