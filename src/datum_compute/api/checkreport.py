"""What a check of a value against its schema finds, and the words it finds for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from datum_compute.api.errors import Cause

# The value, its path and the report to fill; returns the value as it should be stored.
Check = Callable[[Any, str, "Report"], Any]


class Report(msgspec.Struct):
    """What a walk found: errors by field, and the unknown fields it dropped."""

    errors: list[Cause] = []
    unknown: list[str] = []

    def invalid(self, path: str, value: Any, why: str, reason: str = "FieldValueInvalid") -> None:
        self.errors.append(Cause(path, reason, f"Invalid value: {shown(value)}: {why}"))

    def required(self, path: str) -> None:
        self.errors.append(Cause(path, "FieldValueRequired", "Required value"))


class Hidden:
    """Stands for a value that may be secret, wherever one would be shown."""

    def __repr__(self) -> str:
        return "<hidden>"


HIDDEN = Hidden()


def shown(value: Any) -> str:
    """The value as people should see it in an error: short, quoted where it is text."""
    text = f'"{value}"' if isinstance(value, str) else _literal(value)
    return text if len(text) <= 120 else text[:117] + "..."


def joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _literal(value: Any) -> str:
    """As JSON says it, where Python says it otherwise."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case _:
            return repr(value)
