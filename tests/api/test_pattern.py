"""Patterns of users: the same answers as Python's, in time that cannot explode."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import pattern
from datum_compute.api.pattern import compiled_search

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
]


@pytest.mark.parametrize("text", PATTERNS)
@given(value=st.text(alphabet="abcABC12 .@\n", max_size=12))
def test_answers_are_those_of_python(text: str, value: str) -> None:
    expected = re.search(text.replace("$", r"\Z"), value, re.ASCII) is not None
    assert compiled_search(text)(value) is expected
    assert pattern._Machine(pattern._sre.parse(text)).search(value) is expected


@pytest.mark.parametrize("text", ["(a+)+$", "^(a|aa)+$", "(.*)*x", "^(a?){40}a{40}$", "a*a*a*a*b"])
def test_patterns_that_would_take_python_for_ever_are_answered(text: str) -> None:
    search = compiled_search(text)
    assert search("a" * 3000 + "!") is False


@pytest.mark.parametrize(
    "text", ["(", r"(a)\1", "a(?=b)", "(?<=a)b", "(?m)^a", "(a{1000}){1000}", "a{2}{3}", "*"]
)
def test_what_cannot_be_had_is_refused(text: str) -> None:
    with pytest.raises(re.error):
        compiled_search(text)


def test_more_characters_than_are_remembered_change_no_answer() -> None:
    many = "".join(map(chr, range(0x100, 0x100 + 3 * pattern._MOVES_MAX // 2)))
    search = compiled_search("^(a|[^b])+b$")
    assert [search(many + end) for end in ("b", "bb", "a", "ab")] == [True, False, False, True]
