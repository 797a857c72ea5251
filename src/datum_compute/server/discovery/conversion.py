"""Between the form in which objects are stored and the one in which a kind is served.

Most kinds are stored as they are served, and their bytes go from disk to wire untouched. Two are
not: another view of the same objects (events), and a version of a custom kind. What an earlier
schema let into the store is brought up to date when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datum_compute.api.events import RENAMED
from datum_compute.api.kinds import EVENT, EVENTS_V1
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.store.records import Record

Rewrite = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class Conversion:
    """``differs``: served and stored form are never the same. ``since``: objects of that version
    or an older one may have been stored under another schema."""

    from_stored: Rewrite
    to_stored: Rewrite
    differs: bool
    since: int = -1

    def is_current(self, record: Record) -> bool:
        return record.version > self.since

    def body_of(self, record: Record) -> bytes:
        """The bytes of a stored object as the kind is served."""
        if self.is_current(record):
            return self.of_written(record.body)
        return encode(self.from_stored(decode(record.body)))

    @property
    def is_verbatim(self) -> bool:
        """True if ``body_of`` returns the stored bytes of every record."""
        return not self.differs and self.since < 0

    def object_of(self, record: Record) -> JsonObject:
        obj: JsonObject = decode(record.body)
        return self.from_stored(obj) if self.differs or not self.is_current(record) else obj

    def of_written(self, body: bytes) -> bytes:
        """The same for what has just been stored."""
        return encode(self.from_stored(decode(body))) if self.differs else body


AS_STORED = Conversion(lambda obj: obj, lambda obj: obj, differs=False)


def renamed_fields(names: Mapping[str, str], view: str, stored: str) -> Conversion:
    """A view whose fields have other names, and another apiVersion, than the stored ones."""
    back = {theirs: ours for ours, theirs in names.items()}
    return Conversion(
        lambda obj: {**_renamed(obj, back), "apiVersion": view},
        lambda obj: {**_renamed(obj, names), "apiVersion": stored},
        differs=True,
    )


def _renamed(obj: JsonObject, names: Mapping[str, str]) -> JsonObject:
    return {names.get(name, name): value for name, value in obj.items()}


VIEWS: Mapping[str, Conversion] = {
    EVENTS_V1.resource: renamed_fields(RENAMED, EVENTS_V1.api_version, EVENT.api_version)
}
