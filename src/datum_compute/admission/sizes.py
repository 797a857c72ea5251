"""The size that a Workload asks for must be one that is offered.

Active types are offered; a Deprecated one warns and names its replacement; a Disabled or unknown
one is refused. A workload that keeps the type it has is only warned, so that it can be scaled and
repaired whatever becomes of its type. Where there is no catalogue the built-in sizes count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Protocol

from datum_compute.admission.findings import Finding, Warned
from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import Cause
from datum_compute.api.instancetype import BUILT_IN_SIZES, size_name
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta import KindInfo

_FIELD = "spec.template.spec.runtime.resources.instanceType"
_NAMES_MAX = 8


class CatalogueReader(Protocol):
    def catalogue(self, kind: KindInfo[Any]) -> list[JsonObject]: ...


def size_is_offered(
    reader: CatalogueReader, new: JsonObject, old: JsonObject | None
) -> Iterable[Finding]:
    asked = _asked(new)
    name = size_name(asked)
    types = {t["metadata"]["name"]: t["spec"].get("lifecycle", {}) for t in _types(reader)}
    kept = old is not None and size_name(_asked(old)) == name
    if name not in types:
        if not kept:
            yield Cause(_FIELD, "FieldValueNotSupported", _unknown(asked, types))
        return
    phase = types[name].get("phase", "Active")
    instead = types[name].get("replacementInstanceType", "")
    if phase == "Active":
        return
    hint = f"; use {instead} instead" if instead else ""
    text = f"instance type {name} is {phase.lower()}{hint}"
    if phase == "Disabled" and not kept:
        yield Cause(_FIELD, "FieldValueForbidden", f'Forbidden: "{asked}": {text}')
    else:
        yield Warned(f"{_FIELD}: {text}")


def _asked(workload: JsonObject) -> str:
    runtime = workload["spec"]["template"]["spec"]["runtime"]
    return str(runtime.get("resources", {}).get("instanceType", ""))


def _types(reader: CatalogueReader) -> list[JsonObject]:
    found = reader.catalogue(INSTANCE_TYPE)
    return found or [{"metadata": {"name": name}, "spec": {}} for name in BUILT_IN_SIZES]


def _unknown(asked: str, types: Mapping[str, JsonObject]) -> str:
    """The nearest names first, else what there is."""
    offered = sorted(n for n, lifecycle in types.items() if lifecycle.get("phase") != "Disabled")
    near = get_close_matches(size_name(asked), offered, n=3, cutoff=0.6)
    listed = ", ".join(offered[:_NAMES_MAX])
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {listed}"
    return f'Unsupported value: "{asked}": there is no such instance type; {hint}'
