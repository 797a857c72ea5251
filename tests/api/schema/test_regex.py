"""Patterns of users match as in Python, in linear time."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.errors import Invalid
from datum_compute.api.schema import regex as pattern
from datum_compute.api.schema.regex import compile_search
from datum_compute.api.schema.report import STEPS_MAX, CheckBudget

PATTERNS = [
    "a",
    "^a*$",
    "(a+)+$",
    "^(a|aa)+$",
    "^(a?){3}a{3}$",
    "a.c|b",
    "[^ab]c",
    "^[a-c]+(b|c)?$",
    r"\bab\b",
    r"\Ba",
    r"^\d{2,3}\s\w+$",
    "(?i)aB+c",
    "(?s)a.+b.*c",
    "^(?:a|b)*?c",
    "x{0}a",
    r"[\w.-]+@[a-c]+\.c",
    "(a*)*b",
    "",
    "a|",
    r"[\da-b]+[^\s]$",
    "^(a|ab)(c|bcd)?$",
    r"(\b|a)[ab]*(c\b|$)",
    "((a|b)(b|c)){2,3}",
    "(^a|b$)+",
    "[ab]*a[ab]{5}c$",
    "(a{0,3}b){0,2}c?",
    "(?i)[^a-b]B",
]


@pytest.mark.parametrize("text", PATTERNS)
@given(value=st.text(alphabet="abcABC12 .@\n", max_size=12))
def test_the_result_equals_that_of_python(text: str, value: str) -> None:
    expected = re.search(text.replace("$", r"\Z"), value, re.ASCII) is not None
    assert compile_search(text)(value) is expected
    assert pattern._Automaton(pattern._sre.parse(text)).search(value, CheckBudget(), "") is expected


def test_a_character_with_two_letters_in_upper_case_is_matched() -> None:
    """The upper case of \u00df is SS."""
    assert compile_search("(?i)([a-c]+)+$")("\u00df") is False
    assert compile_search("(?i)([^a-c]+)+$")("\u00df") is True


@pytest.mark.parametrize("text", ["(a+)+$", "^(a|aa)+$", "(.*)*x", "^(a?){40}a{40}$", "a*a*a*a*b"])
def test_patterns_with_exponential_backtracking_in_python_are_matched(text: str) -> None:
    search = compile_search(text)
    assert search("a" * 3000 + "!") is False


@pytest.mark.parametrize(
    "text", ["(", r"(a)\1", "a(?=b)", "(?<=a)b", "(?m)^a", "(a{1000}){1000}", "a{2}{3}", "*"]
)
def test_unsupported_patterns_are_rejected(text: str) -> None:
    with pytest.raises(re.error):
        compile_search(text)


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        (r"^\p{L}+$", ["abc", "\u00e4\u4e2d\u02b0"], ["", "a1", "a b"]),
        (r"^\pL\pN$", ["a1", "\u4e2d\u00b2"], ["1a"]),
        (r"^\p{Lu}\p{Ll}*$", ["Abc", "\u00c4\u00df"], ["abc", "AB"]),
        (r"^\p{Nd}{2}$", ["42", "\u0661\u0662"], ["4", "\u00b2\u00b3"]),
        (r"^\P{L}$", ["1", " "], ["a", "\u00e4"]),
        (r"^\PL$", ["1"], ["a"]),
        (r"^\p{^L}$", ["1"], ["a"]),
        (r"^\P{^L}$", ["a"], ["1"]),
        (r"^[\p{L}\p{Nd}_.-]+$", ["a_1.\u00e4-"], ["a b"]),
        (r"^[^\p{L}\d]+$", ["-+ "], ["a", "1"]),
        (r"^[^\p{L}]$", ["1"], ["a"]),
        (r"^[\P{L}a]$", ["a", "1"], ["b"]),
        (r"^(\p{P}|\p{S}|\p{Z})$", ["!", "+", "\u00a0"], ["a", "\n"]),
        (r"^\p{Cc}$", ["\n"], ["a"]),
        (r"^\p{C}$", ["\n", "\ue000"], ["a", "\u0378"]),
        (r"^(\p{L}+)+$", ["abc"], ["ab1"]),
        (r"(?i)^\p{Lu}$", ["A", "a"], ["1"]),
        (r"^[\p{L}-z.]$", ["a", "-", "."], ["1"]),
        (r"^\p{L}-\p{N}$", ["a-1"], ["a1"]),
        (r"^\p{Any}$", ["a", "1"], [""]),
        (r"^\\p{2}$", ["\\pp"], ["a"]),
        (r"^\p{L}\ue000?$", ["a", "a\ue000"], ["\ue000", "\ue000a"]),
        (r"^[\p{L}\uE000]$", ["a", "\ue000"], ["1"]),
    ],
)
def test_general_categories_of_unicode_are_supported(
    text: str, matching: list[str], other: list[str]
) -> None:
    search = compile_search(text)
    assert [value for value in matching if not search(value)] == []
    assert [value for value in other if search(value)] == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r"\p{Greek}", r"\p{Greek} is not supported: only general categories"),
        (r"[a\P{Han}]", r"\P{Han} is not supported: only general categories"),
        (r"\p{l}", r"\p{l} is not supported"),
        (r"\pX", r"\pX is not supported"),
        (r"\p{L", "is not closed"),
        (r"\p", "names no category"),
        (r"[a-\p{L}]", "range"),
    ],
)
def test_unsupported_unicode_classes_are_rejected_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(re.error) as refused:
        compile_search(text)
    assert reason in str(refused.value)


def test_clearing_the_cache_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "CACHE_BYTES_MAX", 100_000)
    many = "".join(map(chr, range(0x100, 0x100 + 2000)))
    automaton = pattern._Automaton(pattern._sre.parse("^(a|[^b])+b$"))
    found = [automaton.search(many + end, CheckBudget(), "") for end in ("b", "bb", "a", "ab")]
    assert found == [True, False, False, True]
    assert pattern._CACHES.bytes_used <= 100_000


def test_the_caches_of_all_patterns_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pattern, "CACHE_BYTES_MAX", 100_000)
    automata = [
        pattern._Automaton(pattern._sre.parse(f"[ab]*a[ab]{{50}}{end}$")) for end in "cdefgh"
    ]
    text = "".join("ab"[number % 7 % 2] for number in range(300))
    for automaton in automata:
        assert automaton.search(text, CheckBudget(), "") is False
    state_sets = sum(len(automaton._state_sets) for automaton in automata)
    assert state_sets * pattern._STATE_SET_BYTES <= 100_000


def random_text(alphabet: str, length: int) -> str:
    random = Random(1)
    return "".join(random.choice(alphabet) for _ in range(length))


def test_a_match_with_many_states_needs_few_steps_per_character() -> None:
    search = compile_search("[ab]*a[ab]{800}c$")
    text = random_text("ab", 3000)
    budget = CheckBudget()
    assert search(text, budget) is False
    assert STEPS_MAX - budget.steps_left < 40 * len(text)


def test_a_match_fails_when_its_budget_is_spent() -> None:
    search = compile_search("[ab]*a[ab]{90}x$")
    with pytest.raises(Invalid) as raised:
        search(random_text("ab", 10_000), CheckBudget(steps_left=5000), "spec.text")
    assert raised.value.causes[0].field == "spec.text"


@pytest.mark.parametrize(
    "text",
    ["a" * 5000, "((a?){30}){30}", "(a|b){3000}c", "|".join(f"a{n}" for n in range(1200)) + "|(x)"],
    ids=lambda text: text[:20],
)
def test_a_pattern_that_is_too_expensive_is_rejected(text: str) -> None:
    with pytest.raises(re.error):
        compile_search(text)


def test_ambiguous_patterns_are_not_matched_by_python() -> None:
    assert not pattern._is_safe_for_python(list(pattern._sre.parse("^" + "(a|ab)" * 4 + "$")))
    assert compile_search("^" + "(a|aa)" * 40 + "c$")("a" * 70) is False
