"""Labels and annotations of instances that only the platform writes.

They say whose an instance is, of which cell and deployment, and what became of its copies. A
template that carries one would say it in the platform's name, and controllers would put it right
for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from datum_compute.api.errors import Cause
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject

_DOMAINS = ("compute.datumapis.com", "meta.datumapis.com", "karmada.io")
_FOR_USERS = frozenset({RESTARTED_AT})


def template_leaves_platform_names_alone(
    new: JsonObject, old: JsonObject | None
) -> Iterable[Cause]:
    """One that was stored before there was this rule can stay, so that its workload can change."""
    asked, kept = _metadata(new), _metadata(old)
    for part in ("labels", "annotations"):
        for key in sorted((asked.get(part) or {}).keys() - (kept.get(part) or {}).keys()):
            if is_reserved(key):
                why = f'Forbidden: "{key}": the platform alone writes names of this domain'
                field = f"spec.template.metadata.{part}"
                yield Cause(field, "FieldValueForbidden", f"{why}; use one of your own")


def is_reserved(key: str) -> bool:
    domain = key.lower().rpartition("/")[0]
    ours = any(domain == one or domain.endswith(f".{one}") for one in _DOMAINS)
    return ours and key not in _FOR_USERS


def _metadata(workload: JsonObject | None) -> JsonObject:
    template: JsonObject = workload["spec"]["template"] if workload is not None else {}
    return template.get("metadata") or {}
