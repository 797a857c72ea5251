"""Converts between the form in which objects are stored and the one in which a kind is served.

Most kinds are stored as they are served, and their bytes are not decoded. There are two exceptions:
another view of the same objects (events), and a version of a custom kind that is not the storage
version. Objects that were stored under an earlier schema are pruned and defaulted when they are
read.
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
class StorageConversion:
    """``differs`` is True if the served form always differs from the stored one. Objects up to the
    version ``outdated_until`` may have been stored under another schema."""

    from_stored: Rewrite
    to_stored: Rewrite
    differs: bool
    outdated_until: int = -1

    @property
    def is_verbatim(self) -> bool:
        """True if ``encode_served`` returns the stored bytes of every record."""
        return not self.differs and self.outdated_until < 0

    def is_current(self, record: Record) -> bool:
        """Return True if the record was stored under the present schema."""
        return record.version > self.outdated_until

    def encode_served(self, record: Record) -> bytes:
        """Return the bytes of a record in the served form."""
        if self.is_current(record):
            return self.convert_current(record.body)
        return encode(self.from_stored(decode(record.body)))

    def decode_served(self, record: Record) -> JsonObject:
        """Return the object of a record in the served form."""
        obj: JsonObject = decode(record.body)
        return self.from_stored(obj) if self.differs or not self.is_current(record) else obj

    def convert_current(self, body: bytes) -> bytes:
        """Convert the bytes of an object that was stored under the present schema."""
        return encode(self.from_stored(decode(body))) if self.differs else body


IDENTITY = StorageConversion(lambda obj: obj, lambda obj: obj, differs=False)


def rename_fields(names: Mapping[str, str], served: str, stored: str) -> StorageConversion:
    """Return a conversion for a view with other field names. ``names`` maps served to stored names;
    ``served`` and ``stored`` are the values of apiVersion."""
    stored_to_served = {stored_name: served_name for served_name, stored_name in names.items()}
    return StorageConversion(
        lambda obj: {**_rename(obj, stored_to_served), "apiVersion": served},
        lambda obj: {**_rename(obj, names), "apiVersion": stored},
        differs=True,
    )


def _rename(obj: JsonObject, names: Mapping[str, str]) -> JsonObject:
    return {names.get(name, name): value for name, value in obj.items()}


VIEWS: Mapping[str, StorageConversion] = {
    EVENTS_V1.resource: rename_fields(RENAMED, EVENTS_V1.api_version, EVENT.api_version)
}
