"""The forms of objects in responses: whole objects, metadata only, or rows of a table.

The Accept header selects the form. Errors and results of deletions are Status objects in each form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import msgspec

from datum_compute.api.errors import copy_beginning, shorten
from datum_compute.api.http import JSON, Request
from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.meta.json_path import value_at
from datum_compute.api.meta.objects import KindInfo, TableColumn
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.server.encoding.list_body import ListBody, join_list, list_body
from datum_compute.server.encoding.request_options import MediaType, choose_media_type, parse_choice

# --- Objects reduced to their metadata, for clients that only track names, labels and owners


META_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class MetadataRepresentation:
    def encode_response(self, body: bytes) -> bytes:
        return self.encode_item(body) + b"\n"

    @property
    def is_verbatim(self) -> bool:
        return False

    def encode_item(self, body: bytes) -> bytes:
        return encode(partial_object(decode(body)))

    def encode_list(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        head = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": META_VERSION,
            "metadata": metadata,
        }
        return list_body(head, items)

    def encode_event(self, body: bytes, *, first: bool) -> bytes:
        return self.encode_item(body)

    def encode_bookmark(self, metadata: JsonObject) -> bytes:
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


# --- Values of printer columns, and ages as people read them
# Of several paths, separated by commas, the first that leads somewhere counts.


CELL_LENGTH_MAX = 1024  # characters; a row repeats a value once for each column that shows it
_TIMESTAMP_LENGTH_MAX = 64


def first_at(obj: Any, paths: str) -> Any:
    """The value at the first of several paths that leads to one."""
    found = (value_at(obj, path) for path in paths.split(","))
    return next((value for value in found if value not in (None, "")), None)


def text_at(obj: Any, paths: str) -> str:
    """The value as a selector compares it."""
    match first_at(obj, paths):
        case None:
            return ""
        case bool() as value:
            return "true" if value else "false"
        case value:
            return str(value)


def cell(obj: Any, column: TableColumn, now: float) -> Any:
    """What a column shows of an object."""
    match column.type:
        case "count":
            return sum(len(value_at(obj, path) or ()) for path in column.path.split(","))
        case "date":
            return age(first_at(obj, column.path), now)
        case "reference" | "object":
            found = first_at(obj, column.path) or {}
            kind: str = found.get("kind", "")
            shown_kind = kind.lower() if column.type == "object" else kind
            return f"{shown_kind}/{found.get('name', '')}"
        case _:
            return _render_cell(first_at(obj, column.path))


def _render_cell(value: Any) -> Any:
    """Return a number or a boolean as it is, anything else as text of limited length."""
    if isinstance(value, dict | list):
        value = encode(copy_beginning(value, CELL_LENGTH_MAX)).decode()
    return shorten(value, CELL_LENGTH_MAX) if isinstance(value, str) else value


def age(created: Any, now: float) -> str:
    """How long ago a timestamp was, in at most two units."""
    if not isinstance(created, str):
        return "<unknown>"
    if len(created) > _TIMESTAMP_LENGTH_MAX:
        return "<invalid>"
    try:
        seconds = int(now - parse_timestamp(created))
    except ValueError:
        return "<invalid>"
    return duration(max(seconds, 0))


def duration(seconds: int) -> str:
    """Format a duration as kubectl does: the longer the duration, the coarser the unit."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 2 * 365:
        return f"{days}d"
    if days < 8 * 365:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"


# --- Objects as rows of a table: what ``kubectl get`` prints
# Columns come from the kind. Dates are shown as ages, missing values are null, and a kind without
# columns gets its age.


# The server sends a date as the text of its age, so the type of the column is string.
_SHOWN_TYPES = {"date": "string", "count": "integer", "reference": "string", "object": "string"}
_ROWS = "rows"
INCLUDE = ("Metadata", "Object", "None")
_AGE = TableColumn("Age", ".metadata.creationTimestamp", "date", description="How long it exists")


@dataclass(frozen=True, slots=True)
class TableRepresentation:
    kind: KindInfo[Any]
    include: str
    clock: Callable[[], float]

    def encode_response(self, body: bytes) -> bytes:
        return self.encode_event(body, first=True) + b"\n"

    @property
    def is_verbatim(self) -> bool:
        return False

    def encode_item(self, body: bytes) -> bytes:
        return encode(self._row(decode(body)))

    def encode_list(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        return list_body(self._head(metadata, first=True), items, field=_ROWS)

    def encode_event(self, body: bytes, *, first: bool) -> bytes:
        obj = decode(body)
        row = encode(self._row(obj))
        return self._table({"resourceVersion": _version(obj)}, [row], first=first)

    def encode_bookmark(self, metadata: JsonObject) -> bytes:
        return self._table(metadata, [], first=False)

    @property
    def form_key(self) -> Hashable:
        return ("table", self.include, self.kind.api_version, self.kind.kind, _columns(self.kind))

    def event_variant(self, *, first: bool) -> Hashable:
        return (first, int(self.clock()))  # ages are shown in seconds

    def _table(self, metadata: JsonObject, rows: list[bytes], *, first: bool) -> bytes:
        return join_list(self._head(metadata, first=first), rows, _ROWS)

    def _head(self, metadata: JsonObject, *, first: bool) -> JsonObject:
        """Later events of a watch do not repeat the definitions."""
        definitions = [_name_definition(), *map(_definition, _columns(self.kind))] if first else []
        return {
            "kind": "Table",
            "apiVersion": META_VERSION,
            "metadata": metadata,
            "columnDefinitions": definitions,
        }

    def _row(self, obj: JsonObject) -> JsonObject:
        cells = [obj["metadata"]["name"], *(self._cell(obj, c) for c in _columns(self.kind))]
        match self.include:
            case "None":
                return {"cells": cells}
            case "Object":
                return {"cells": cells, "object": obj}
            case _:
                return {"cells": cells, "object": partial_object(obj)}

    def _cell(self, obj: JsonObject, column: TableColumn) -> Any:
        return cell(obj, column, self.clock())


def _columns(kind: KindInfo[Any]) -> tuple[TableColumn, ...]:
    return kind.columns or (_AGE,)


def _definition(column: TableColumn) -> JsonObject:
    return {
        "name": column.name,
        "type": _SHOWN_TYPES.get(column.type, column.type),
        "format": "",
        "description": column.description,
        "priority": 1 if column.wide else 0,
    }


def _name_definition() -> JsonObject:
    text = "Name of the object, unique for its kind in its namespace"
    return {"name": "Name", "type": "string", "format": "name", "description": text, "priority": 0}


def _version(obj: JsonObject) -> str:
    version: str = obj["metadata"].get("resourceVersion", "")
    return version


# --- representation


_META = "meta.k8s.io"
_TABLE = MediaType(JSON, "Table", _META, "v1")
_PARTIAL = MediaType(JSON, "PartialObjectMetadata", _META, "v1")
_PARTIAL_LIST = MediaType(JSON, "PartialObjectMetadataList", _META, "v1")


class Representation(Protocol):
    """Bytes of stored objects in, bytes for the wire out."""

    def encode_response(self, body: bytes) -> bytes:
        """Return the body of a response with one object. It ends with a newline."""
        ...

    @property
    def is_verbatim(self) -> bool:
        """True if ``encode_item`` returns its argument unchanged."""
        ...

    def encode_item(self, body: bytes) -> bytes:
        """Return one object in the form that ``encode_list`` takes."""
        ...

    def encode_list(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        """Return the list body of results of ``encode_item``."""
        ...

    def encode_event(self, body: bytes, *, first: bool) -> bytes:
        """Return the object of a watch event.

        ``first`` is True for the first initial event of a watch and for the first later change.
        """
        ...

    def encode_bookmark(self, metadata: JsonObject) -> bytes: ...

    @property
    def form_key(self) -> Hashable:
        """A key that is equal for representations that encode objects in the same way."""
        ...

    def event_variant(self, *, first: bool) -> Hashable:
        """Return further inputs of ``encode_event``, such as the time. Equal inputs give equal
        results."""
        ...


class ObjectRepresentation(msgspec.Struct, frozen=True):
    """Stored bytes are wire bytes: nothing is decoded."""

    kind: KindInfo[Any]

    def encode_response(self, body: bytes) -> bytes:
        return body + b"\n"

    @property
    def is_verbatim(self) -> bool:
        return not self.kind.built_in

    def encode_item(self, body: bytes) -> bytes:
        if not self.kind.built_in:
            return body
        types = self._types()
        return body if body.startswith(types) else _types_first(body, types)

    def encode_list(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        head = {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.list_kind,
            "metadata": metadata,
        }
        # Items of built-in lists omit apiVersion and kind, as in kube-apiserver.
        return list_body(head, items, omitted_prefix=self._types() if self.kind.built_in else b"")

    def _types(self) -> bytes:
        return encode({"apiVersion": self.kind.api_version, "kind": self.kind.kind})[:-1] + b","

    def encode_event(self, body: bytes, *, first: bool) -> bytes:
        return body

    def encode_bookmark(self, metadata: JsonObject) -> bytes:
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
def _select_media(accept: str) -> MediaType:
    return choose_media_type(accept, (_TABLE, _PARTIAL, _PARTIAL_LIST))


def select_representation(
    kind: KindInfo[Any], request: Request, clock: Callable[[], float]
) -> Representation:
    """Return the representation that the Accept header selects. Raise NotAcceptable if it accepts
    none. Verbs call this before they change anything."""
    media = _select_media(request.headers.get("accept", ""))
    if not media.form:
        return ObjectRepresentation(kind)
    if media == _TABLE:
        include = parse_choice(request.query, "includeObject", INCLUDE) or "Metadata"
        return TableRepresentation(kind, include, clock)
    return MetadataRepresentation()
