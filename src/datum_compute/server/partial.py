"""Objects reduced to their metadata, for clients that only track names, labels and owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datum_compute.api.codec import JsonObject, decode, encode

META_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class PartialForm:
    def single(self, body: bytes) -> bytes:
        return encode(partial_object(decode(body)))

    @property
    def is_verbatim(self) -> bool:
        return False

    def item(self, body: bytes) -> bytes:
        return self.single(body)

    def listed(self, metadata: JsonObject, items: list[bytes]) -> bytes:
        head = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": META_VERSION,
            "metadata": metadata,
        }
        return join_items(head, "items", items)

    def event(self, body: bytes, *, first: bool) -> bytes:
        return self.single(body)

    def bookmark(self, metadata: JsonObject) -> bytes:
        return encode(partial_object({"metadata": metadata}))


def join_items(head: JsonObject, field: str, items: list[bytes]) -> bytes:
    """A JSON object with encoded items in its last field; changes ``items``."""
    start, end = encode(head)[:-1] + b',"' + field.encode() + b'":[', b"]}"
    if not items:
        return start + end
    # Into the first and the last item: the result may be large, and this way is copied only once.
    items[0] = start + items[0]
    items[-1] += end
    return b",".join(items)


def partial_object(obj: Any) -> JsonObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META_VERSION,
        "metadata": obj["metadata"],
    }
