"""The form of names: DNS labels and subdomains, qualified names, label values.

Each function says why a text does not fit, or returns the empty string.
"""

from __future__ import annotations

import re
from functools import lru_cache

NAME_MAX, LABEL_MAX = 253, 63
_QUALIFIED_NAME_MAX = NAME_MAX + len("/") + LABEL_MAX

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_PATH_SEGMENT = re.compile(rf"[^/%\s\x00-\x1f\x7f]{{1,{NAME_MAX}}}")
_NAME_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


def dns_label_problem(name: str) -> str:
    return _too_long(name, LABEL_MAX) or _form(
        _DNS_LABEL, name, "must be lower case letters, digits and inner dashes"
    )


def dns_subdomain_problem(name: str) -> str:
    return _too_long(name, NAME_MAX) or _form(
        _DNS_SUBDOMAIN,
        name,
        "must be a lower case DNS subdomain: letters, digits, '-' and '.', beginning and ending "
        "with a letter or digit",
    )


def path_segment_problem(name: str) -> str:
    """For names that may be anything a path can hold, such as ``system:admin``."""
    if name in (".", "..") or not _PATH_SEGMENT.fullmatch(name):
        return (
            f"must be 1 to {NAME_MAX} characters, not '.' or '..', without '/', '%' or white space"
        )
    return ""


def qualified_name_problem(name: str) -> str:
    """Why a key (an optional DNS prefix, a slash and a name) is not valid."""
    if len(name) > _QUALIFIED_NAME_MAX:  # invalid, and too large for the cache
        return _find_qualified_name_problem(name)
    return _cached_qualified_name_problem(name)


def _find_qualified_name_problem(name: str) -> str:
    prefix, slash, part = name.rpartition("/")
    if slash and (len(prefix) > NAME_MAX or not _DNS_SUBDOMAIN.fullmatch(prefix)):
        return "the part before the slash must be a DNS subdomain"
    return _too_long(part, LABEL_MAX) or _form(
        _NAME_PART,
        part,
        "the name must be letters, digits, '-', '_' or '.', beginning and ending with a letter "
        "or digit",
    )


# Objects repeat the same few label keys and values.
_cached_qualified_name_problem = lru_cache(maxsize=4096)(_find_qualified_name_problem)


def label_value_problem(value: str) -> str:
    return _too_long(value, LABEL_MAX) or _find_label_value_problem(value)


@lru_cache(maxsize=4096)
def _find_label_value_problem(value: str) -> str:
    if not value:
        return ""
    return _form(
        _NAME_PART,
        value,
        "a label value must be letters, digits, '-', '_' or '.', beginning and ending with a "
        "letter or digit",
    )


def _too_long(text: str, length_max: int) -> str:
    return f"must be no more than {length_max} characters" if len(text) > length_max else ""


def _form(pattern: re.Pattern[str], text: str, rule: str) -> str:
    return "" if pattern.fullmatch(text) else rule
