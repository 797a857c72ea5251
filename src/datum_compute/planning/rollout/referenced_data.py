"""Whether the ConfigMaps and Secrets that are referred to (``api/references.py`` finds them) can be
taken, and if not, why.

Rules kept here:
- What is required must be there with every key that is asked for, and be small enough; what is
  missing is named with the field that asks for it. Names and sizes are told, values never.
- Of an optional source nothing is asked: one that cannot be taken is left out.
- What is taken is pinned by version. A later change of the source touches nothing that runs; the
  next start takes what is there then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue
from datum_compute.api.configmap import ConfigMap
from datum_compute.api.datasources import PinnedData
from datum_compute.api.reasons import Reason
from datum_compute.api.references import Reference, Source, sources
from datum_compute.api.secret import Secret

SOURCE_BYTES_MAX = 256 * 1024
TOTAL_BYTES_MAX = 1024 * 1024
MESSAGE_MAX = 1024
VERSION_MAX = 64

SourceObject = ConfigMap | Secret

_PRESENT = ConditionValue(TRUE, Reason.READY, "The ConfigMaps and Secrets it refers to are there")
# Which reason speaks for several problems.
_ORDER = (Reason.SOURCE_UNAUTHORIZED, Reason.SOURCE_NOT_FOUND, Reason.SOURCE_TOO_LARGE)


@dataclass(frozen=True, slots=True)
class ObservedSources:
    """The sources there are, and those that may not be read; the rest do not exist."""

    held: Mapping[Source, SourceObject] = field(default_factory=dict, repr=False)
    denied: frozenset[Source] = frozenset()


def data_verdict(wanted: Sequence[Reference], observed: ObservedSources) -> ConditionValue:
    """True if all that is required can be taken; else what is wrong, all of it."""
    problems = [p for r in wanted if not r.optional for p in _problems(r, observed)]
    total = sum(size_bytes(held) for held in delivered_sources(wanted, observed).values())
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
    """The sources that are delivered, optional ones that are there included."""
    return {
        source: held
        for source in sources(wanted)
        if (held := observed.held.get(source)) is not None
        and source not in observed.denied
        and size_bytes(held) <= SOURCE_BYTES_MAX
    }


def pinned_versions(wanted: Sequence[Reference], observed: ObservedSources) -> list[PinnedData]:
    return [
        PinnedData(kind=source.kind, name=source.name, resource_version=version_of(held))
        for source, held in delivered_sources(wanted, observed).items()
    ]


def version_of(held: SourceObject) -> str:
    """The version that its owner knows: a copy carries that of its source."""
    metadata = held.metadata
    told = metadata.annotations.get(labels.SOURCE_VERSION, "") if has_copy_label(held) else ""
    return told if 0 < len(told) <= VERSION_MAX else metadata.resource_version


def has_copy_label(held: SourceObject) -> bool:
    """A copy that came from the hub, or is on it. In a project the mark means nothing: users write
    it there as they like."""
    return held.metadata.labels.get(labels.REFERENCED_DATA) == "true"


def size_bytes(held: SourceObject) -> int:
    """What its values come to when they are delivered."""
    encoded = held.data.values() if isinstance(held, Secret) else held.binary_data.values()
    texts = () if isinstance(held, Secret) else held.data.values()
    return sum(len(text.encode()) for text in texts) + sum(map(_decoded_bytes, encoded))


def _decoded_bytes(base64: str) -> int:
    return len(base64) * 3 // 4 - base64[-2:].count("=")


def keys_of(held: SourceObject) -> set[str]:
    return set(held.data) if isinstance(held, Secret) else {*held.data, *held.binary_data}


def _problems(reference: Reference, observed: ObservedSources) -> Iterator[ConditionValue]:
    source, place = reference.source, reference.field
    if source in observed.denied:
        message = f"{source} may not be read by the platform (asked for by {place})"
        yield ConditionValue(FALSE, Reason.SOURCE_UNAUTHORIZED, message)
        return
    held = observed.held.get(source)
    if held is None:
        message = f"{source} does not exist (asked for by {place})"
        yield ConditionValue(FALSE, Reason.SOURCE_NOT_FOUND, message)
        return
    missing = [key for key in reference.keys if key not in keys_of(held)]
    if missing:
        message = f"{source} has no key {', '.join(missing)} (asked for by {place})"
        yield ConditionValue(FALSE, Reason.SOURCE_NOT_FOUND, message)
    if (size := size_bytes(held)) > SOURCE_BYTES_MAX:
        message = f"{source} has {size} bytes, more than {SOURCE_BYTES_MAX}"
        yield ConditionValue(FALSE, Reason.SOURCE_TOO_LARGE, message)
