"""Query parameters: flags, numbers and the choices they carry. What is odd is refused, with 400
for what cannot be read and 422 for what Kubernetes calls invalid."""

from __future__ import annotations

import re
from collections.abc import Mapping

from datum_compute.api.errors import BadRequest, Cause, Invalid
from datum_compute.server.problems import shortened

_NUMBER = re.compile(r"(-?)([0-9]+)")
_DIGITS_MAX = 18


def flag(query: Mapping[str, str], name: str) -> bool:
    """Present means true, even without a value; only 0 and false are false."""
    return name in query and query[name].lower() not in ("0", "false")


def number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise _invalid_number(name, text, "must be a whole number")
    if found[1]:
        raise _invalid_number(name, text, "must be 0 or greater")
    if len(text) > _DIGITS_MAX:
        raise _invalid_number(name, text, f"must be less than {10**_DIGITS_MAX}")
    return int(text)


def _invalid_number(name: str, text: str, reason: str) -> BadRequest:
    return BadRequest(f'{name}: Invalid value: "{shortened(text)}": {reason}')


def dry_run(query: Mapping[str, str]) -> bool:
    return is_dry_run(query.get("dryRun", ""))


def is_dry_run(value: str) -> bool:
    if value not in ("", "All"):
        raise _unsupported("dryRun", value, ("All",))
    return value == "All"


def choice(query: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """One of ``allowed``, or the empty string when the parameter is not given."""
    value = query.get(name, "")
    if value and value not in allowed:
        raise _unsupported(name, value, allowed)
    return value


def _unsupported(name: str, value: str, allowed: tuple[str, ...]) -> Invalid:
    listed = ", ".join(f'"{a}"' for a in allowed)
    why = f'Unsupported value: "{shortened(value)}": supported values: {listed}'
    return Invalid(f"{name}: {why}", causes=[Cause(name, "FieldValueNotSupported", why)])
