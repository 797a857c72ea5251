"""Times as every reader expects them: UTC, and whole seconds or six digits of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import normalized_micro_time, normalized_time

Path = Sequence[str]


def with_times(
    *, seconds: Sequence[Path] = (), micro: Sequence[Path] = ()
) -> Callable[[JsonObject, JsonObject | None], JsonObject]:
    """A default that rewrites the times at these paths; the schema has checked their form."""

    def rewrite(new: JsonObject, old: JsonObject | None) -> JsonObject:
        for path in seconds:
            new = _rewritten(new, path, normalized_time)
        for path in micro:
            new = _rewritten(new, path, normalized_micro_time)
        return new

    return rewrite


def _rewritten(obj: JsonObject, path: Path, rewrite: Callable[[str], str]) -> JsonObject:
    name, *rest = path
    value = obj.get(name)
    if rest:
        return {**obj, name: _rewritten(value, rest, rewrite)} if isinstance(value, dict) else obj
    return {**obj, name: rewrite(value)} if isinstance(value, str) else obj
