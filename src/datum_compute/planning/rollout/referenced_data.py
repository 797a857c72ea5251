"""Whether the ConfigMaps and Secrets that a template references can be delivered, and if not, why.

Rules:
- A required source must exist, contain every referenced key, and be small enough. Messages name
  what is missing and the field that references it. They contain names and sizes, never values.
- An optional source that cannot be delivered is left out.
- Delivered sources are pinned by version. A later change of a source does not affect running
  machines; the next start delivers the version of that time.

``api/compute/referenced_data.py`` finds the references.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from datum_compute.api import labels
from datum_compute.api.compute.data_sources import PinnedData
from datum_compute.api.compute.referenced_data import Reference, Source, sources
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue, Reason
from datum_compute.api.core import ConfigMap, Secret

SOURCE_BYTES_MAX = 256 * 1024
TOTAL_BYTES_MAX = 1024 * 1024
MESSAGE_MAX = 1024
VERSION_MAX = 64

SourceObject = ConfigMap | Secret

_PRESENT = ConditionValue(TRUE, Reason.READY, "All referenced ConfigMaps and Secrets are present")
# If there are several problems, the reason that comes first here is reported.
_ORDER = (Reason.SOURCE_UNAUTHORIZED, Reason.SOURCE_NOT_FOUND, Reason.SOURCE_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class ObservedSources:
    """The sources that exist, and those that may not be read. Other sources do not exist."""

    present: Mapping[Source, SourceObject] = field(default_factory=dict, repr=False)
    denied: frozenset[Source] = frozenset()


def check_sources(wanted: Sequence[Reference], observed: ObservedSources) -> ConditionValue:
    """Return True if all required sources can be delivered, otherwise False with all problems."""
    problems = [p for r in wanted if not r.optional for p in _problems(r, observed)]
    total = sum(size_bytes(obj) for obj in delivered_sources(wanted, observed).values())
    if total > TOTAL_BYTES_MAX:
        message = f"all sources together have {total} bytes, more than {TOTAL_BYTES_MAX}"
        problems.append(ConditionValue(FALSE, Reason.SOURCE_TOO_LARGE, message))
    if not problems:
        return _PRESENT
    problems.sort(key=lambda problem: _ORDER.index(Reason(problem.reason)))
    message = "; ".join(dict.fromkeys(problem.message for problem in problems))
    if len(message) > MESSAGE_MAX:
        message = message[: MESSAGE_MAX - 3] + "..."
    return ConditionValue(FALSE, problems[0].reason, message)


def delivered_sources(
    wanted: Sequence[Reference], observed: ObservedSources
) -> dict[Source, SourceObject]:
    """Return the sources to deliver, including optional ones that exist."""
    return {
        source: obj
        for source in sources(wanted)
        if (obj := observed.present.get(source)) is not None
        and source not in observed.denied
        and size_bytes(obj) <= SOURCE_BYTES_MAX
    }


def pinned_versions(wanted: Sequence[Reference], observed: ObservedSources) -> list[PinnedData]:
    return [
        PinnedData(kind=source.kind, name=source.name, resource_version=version_of(obj))
        for source, obj in delivered_sources(wanted, observed).items()
    ]


def version_of(obj: SourceObject) -> str:
    """Return the version of the source. A copy records it in an annotation."""
    metadata = obj.metadata
    source = metadata.annotations.get(labels.SOURCE_VERSION, "") if has_copy_label(obj) else ""
    return source if 0 < len(source) <= VERSION_MAX else metadata.resource_version


def has_copy_label(obj: SourceObject) -> bool:
    """Return True for a copy on the hub or on a cell.

    In a project the label has no meaning, because users can set it.
    """
    return obj.metadata.labels.get(labels.REFERENCED_DATA) == "true"


def size_bytes(obj: SourceObject) -> int:
    """Return the total size of the values as delivered."""
    encoded = obj.data.values() if isinstance(obj, Secret) else obj.binary_data.values()
    texts = () if isinstance(obj, Secret) else obj.data.values()
    return sum(len(text.encode()) for text in texts) + sum(map(_decoded_bytes, encoded))


def _decoded_bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def keys_of(obj: SourceObject) -> set[str]:
    return set(obj.data) if isinstance(obj, Secret) else {*obj.data, *obj.binary_data}


def _problems(reference: Reference, observed: ObservedSources) -> Iterator[ConditionValue]:
    source, place = reference.source, reference.field
    if source in observed.denied:
        message = f"{source} may not be read by the platform (referenced by {place})"
        yield ConditionValue(FALSE, Reason.SOURCE_UNAUTHORIZED, message)
        return
    obj = observed.present.get(source)
    if obj is None:
        message = f"{source} does not exist (referenced by {place})"
        yield ConditionValue(FALSE, Reason.SOURCE_NOT_FOUND, message)
        return
    missing = [key for key in reference.keys if key not in keys_of(obj)]
    if missing:
        message = f"{source} has no key {', '.join(missing)} (referenced by {place})"
        yield ConditionValue(FALSE, Reason.SOURCE_NOT_FOUND, message)
    if (size := size_bytes(obj)) > SOURCE_BYTES_MAX:
        message = f"{source} has {size} bytes, more than {SOURCE_BYTES_MAX}"
        yield ConditionValue(FALSE, Reason.SOURCE_TOO_LARGE, message)
