"""The forms in which objects are shown: as they are, as metadata only, or as rows of a table.

The Accept header chooses. Errors and deletion results stay Status objects in every form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from datum_compute.api.http import JSON
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.call import Call
from datum_compute.server.encoding.list_body import ListBody, list_body
from datum_compute.server.encoding.request_options import MediaType, preferred
from datum_compute.server.options import choice
from datum_compute.server.partial import PartialForm
from datum_compute.server.table import INCLUDE, TableForm

_META = "meta.k8s.io"
_TABLE = MediaType(JSON, "Table", _META, "v1")
_PARTIAL = MediaType(JSON, "PartialObjectMetadata", _META, "v1")
_PARTIAL_LIST = MediaType(JSON, "PartialObjectMetadataList", _META, "v1")


class Representation(Protocol):
    """Bytes of stored objects in, bytes for the wire out."""

    def single(self, body: bytes) -> bytes: ...

    @property
    def is_verbatim(self) -> bool:
        """True if ``item`` returns its argument unchanged."""
        ...

    def item(self, body: bytes) -> bytes:
        """Return one object in the form that ``listed`` takes."""
        ...

    def listed(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        """Return the list body of results of ``item``."""
        ...

    def event(self, body: bytes, *, first: bool) -> bytes:
        """The object of a watch event; ``first`` for one of which readers know no form yet."""
        ...

    def bookmark(self, metadata: JsonObject) -> bytes: ...

    @property
    def form_key(self) -> Hashable:
        """A key that is equal for representations that encode objects in the same way."""
        ...

    def event_variant(self, *, first: bool) -> Hashable:
        """Return other inputs of ``event``, such as the time. Equal inputs give equal results."""
        ...


class PlainForm(msgspec.Struct, frozen=True):
    """Stored bytes are wire bytes: nothing is decoded."""

    kind: KindInfo[Any]

    def single(self, body: bytes) -> bytes:
        return body

    @property
    def is_verbatim(self) -> bool:
        return not self.kind.built_in

    def item(self, body: bytes) -> bytes:
        if not self.kind.built_in:
            return body
        types = self._types()
        return body if body.startswith(types) else _types_first(body, types)

    def listed(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        head = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.list_kind,
            "metadata": metadata,
        }
        # Items of built-in lists omit apiVersion and kind, as in kube-apiserver.
        return list_body(head, items, omitted_prefix=self._types() if self.kind.built_in else b"")

    def _types(self) -> bytes:
        return encode({"apiVersion": self.kind.api_version, "kind": self.kind.kind})[:-1] + b","

    def event(self, body: bytes, *, first: bool) -> bytes:
        return body

    def bookmark(self, metadata: JsonObject) -> bytes:
        kind = self.kind
        return encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})

    @property
    def form_key(self) -> Hashable:
        return "plain"

    def event_variant(self, *, first: bool) -> Hashable:
        return None


def _types_first(body: bytes, types: bytes) -> bytes:
    obj = decode(body)
    rest = {name: obj[name] for name in obj if name not in ("apiVersion", "kind")}
    return types + encode(rest)[1:]


@lru_cache(maxsize=256)  # ``preferred`` raises for a long header, which is then not cached
def _asked_for(accept: str) -> MediaType:
    return preferred(accept, (_TABLE, _PARTIAL, _PARTIAL_LIST))


def representation_of(call: Call, clock: Callable[[], float]) -> Representation:
    """The form the caller asked for; raises NotAcceptable before anything has been done."""
    media = _asked_for(call.request.headers.get("accept", ""))
    if not media.form:
        return PlainForm(call.kind)
    if media == _TABLE:
        include = choice(call.query, "includeObject", INCLUDE) or "Metadata"
        return TableForm(call.kind, include, clock)
    return PartialForm()
