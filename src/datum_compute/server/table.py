"""Objects as rows of a table: what ``kubectl get`` prints.

Columns come from the kind. Dates are shown as ages, missing values are null, and a kind without
columns gets its age.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.api.meta.objects import Column, KindInfo
from datum_compute.server.columns import cell
from datum_compute.server.encoding.list_body import ListBody, joined_list, list_body
from datum_compute.server.partial import META_VERSION, partial_object

# A date is sent as the age it will be printed as, so for readers it is text.
_SHOWN_TYPES = {"date": "string", "count": "integer", "reference": "string", "object": "string"}
_ROWS = "rows"
INCLUDE = ("Metadata", "Object", "None")
_AGE = Column("Age", ".metadata.creationTimestamp", "date", description="How long it exists")


@dataclass(frozen=True, slots=True)
class TableForm:
    kind: KindInfo[Any]
    include: str
    clock: Callable[[], float]

    def single(self, body: bytes) -> bytes:
        obj = decode(body)
        return self._table({"resourceVersion": _version(obj)}, [encode(self._row(obj))], first=True)

    @property
    def is_verbatim(self) -> bool:
        return False

    def item(self, body: bytes) -> bytes:
        return encode(self._row(decode(body)))

    def listed(self, metadata: JsonObject, items: list[bytes]) -> bytes | ListBody:
        return list_body(self._head(metadata, first=True), items, field=_ROWS)

    def event(self, body: bytes, *, first: bool) -> bytes:
        obj = decode(body)
        row = encode(self._row(obj))
        return self._table({"resourceVersion": _version(obj)}, [row], first=first)

    def bookmark(self, metadata: JsonObject) -> bytes:
        return self._table(metadata, [], first=False)

    @property
    def form_key(self) -> Hashable:
        return ("table", self.include, self.kind.api_version, self.kind.kind, _columns(self.kind))

    def event_variant(self, *, first: bool) -> Hashable:
        return (first, int(self.clock()))  # ages are shown in seconds

    def _table(self, metadata: JsonObject, rows: list[bytes], *, first: bool) -> bytes:
        return joined_list(self._head(metadata, first=first), rows, _ROWS)

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

    def _cell(self, obj: JsonObject, column: Column) -> Any:
        return cell(obj, column, self.clock())


def _columns(kind: KindInfo[Any]) -> tuple[Column, ...]:
    return kind.columns or (_AGE,)


def _definition(column: Column) -> JsonObject:
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
