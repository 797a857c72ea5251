"""Names of objects that become part of something with a shorter limit."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject


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
