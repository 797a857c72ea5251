r"""General categories of Unicode in patterns, such as ``\p{L}`` and ``\P{Nd}``.

Python's parser of regular expressions has no syntax for them. Each is therefore replaced by a
placeholder, a private character that does not occur in the pattern. The automaton of ``regex.py``
matches the category where it finds the placeholder. As in Kubernetes, C does not contain unassigned
characters. Scripts such as ``\p{Greek}`` are not supported.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

_CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "L": ("Lu", "Ll", "Lt", "Lm", "Lo"),
    "M": ("Mn", "Mc", "Me"),
    "N": ("Nd", "Nl", "No"),
    "P": ("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"),
    "S": ("Sm", "Sc", "Sk", "So"),
    "Z": ("Zs", "Zl", "Zp"),
    "C": ("Cc", "Cf", "Co", "Cs"),
}
_BY_NAME: Mapping[str, frozenset[str]] = {
    **{name: frozenset(parts) for name, parts in _CATEGORIES.items()},
    **{part: frozenset({part}) for parts in _CATEGORIES.values() for part in parts},
    "Any": frozenset({"Cn"}.union(*_CATEGORIES.values())),
}
# The private characters from which placeholders are chosen.
_PLACEHOLDERS = range(0xE000, 0xF900)


@dataclass(frozen=True, slots=True)
class _Category:
    source: str  # as it is written in the pattern
    name: str
    is_negative: bool


def replace_categories(pattern: str) -> tuple[str, dict[int, Callable[[str], bool]]]:
    """Return the pattern with placeholders, and by code point of each what it matches.

    Raises re.error for a category that is not supported.
    """
    free = _unused_characters(pattern)
    matchers: dict[int, Callable[[str], bool]] = {}
    placeholders: dict[tuple[str, bool], int] = {}
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern[at] != "\\" or at + 1 == len(pattern) or pattern[at + 1] not in "pP":
            width = 2 if pattern[at] == "\\" else 1
            parts.append(pattern[at : at + width])
            at += width
            continue
        category = _read_category(pattern, at)
        key = (category.name, category.is_negative)
        if key not in placeholders:
            placeholders[key] = next(free)
            matchers[placeholders[key]] = _matcher(category)
        parts.append(chr(placeholders[key]))
        at += len(category.source)
        if pattern[at : at + 1] == "-":  # it begins no range, also inside of a class
            parts.append("\\-")
            at += 1
    return "".join(parts), matchers


def _unused_characters(pattern: str) -> Iterator[int]:
    """Yield private characters that the pattern does not contain, also not as an escape."""
    lower = pattern.lower()
    return (c for c in _PLACEHOLDERS if chr(c) not in pattern and f"{c:x}" not in lower)


def _read_category(pattern: str, at: int) -> _Category:
    is_negative = pattern[at + 1] == "P"
    rest = pattern[at + 2 :]
    if not rest:
        raise re.error(f"{pattern[at:]} names no category of Unicode")
    if rest[0] != "{":
        return _Category(pattern[at : at + 3], rest[0], is_negative)
    name, brace, _ = rest[1:].partition("}")
    if not brace:
        raise re.error(f"{pattern[at : at + 3]} is not closed by }}")
    source = pattern[at : at + len(name) + 4]
    return _Category(source, name.removeprefix("^"), is_negative is not name.startswith("^"))


def _matcher(category: _Category) -> Callable[[str], bool]:
    found = _BY_NAME.get(category.name)
    if found is None:
        raise re.error(
            f"{category.source[:40]} is not supported: only general categories of Unicode are, "
            r"such as \p{L}, \p{Lu}, \p{Nd} or \P{Z}"
        )
    return partial(_is_in, found, category.is_negative)


def _is_in(categories: frozenset[str], is_negative: bool, character: str) -> bool:
    return (unicodedata.category(character) in categories) is not is_negative
