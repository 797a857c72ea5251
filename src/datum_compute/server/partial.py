"""Objects reduced to their metadata, for clients that only track names, labels and owners."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.encoding.list_body import ListBody, list_body

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

    def listed(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        head = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": META_VERSION,
            "metadata": metadata,
        }
        return list_body(head, items)

    def event(self, body: bytes, *, first: bool) -> bytes:
        return self.single(body)

    def bookmark(self, metadata: JsonObject) -> bytes:
        return encode(partial_object({"metadata": metadata}))

    @property
    def form_key(self) -> Hashable:
        return "metadata"

    def event_variant(self, *, first: bool) -> Hashable:
        return None


def partial_object(obj: Any) -> JsonObject:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": META_VERSION,
        "metadata": obj["metadata"],
    }
