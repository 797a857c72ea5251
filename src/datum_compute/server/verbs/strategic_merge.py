"""Strategic merge patch for built-in kinds: a merge patch that merges some lists item by item.

The merge key of a list is the field that identifies an item. The API types mark the merged lists
with ``merge_patch_by`` or ``MERGE_PATCH_VALUES`` (api/meta/fields.py); other lists are replaced. A
patch can contain directives: ``$patch`` (replace, merge, delete), ``$retainKeys``,
``$deleteFromPrimitiveList/<list>`` and ``$setElementOrder/<list>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from datum_compute.api.errors import BadRequest, shorten
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import PATCH_KEY, PATCH_STRATEGY
from datum_compute.api.meta.objects import KindInfo, ObjectMeta
from datum_compute.api.schema.derive import struct_schema, structural_schema
from datum_compute.server.apply.field_shape import canonical_text
from datum_compute.server.apply.merge import merge_order
from datum_compute.server.encoding.body import json_type

_Path = tuple[str, ...]
_MergeKeys = Mapping[_Path, str]

_VALUES = ""  # scalars: the value of an item identifies it
_ITEM = "[]"  # the step of a path from a list to its items

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_VALUES, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def apply_strategic_merge(kind: KindInfo[Any], old: JsonObject, patch: Any) -> JsonObject:
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be a JSON object")
    return _Merge(_merge_keys(kind)).merge_objects(old, patch, ())


@cache
def _merge_keys(kind: KindInfo[Any]) -> _MergeKeys:
    """Return the merge key of each marked list of a kind, by path."""
    metadata = struct_schema(ObjectMeta)
    properties = {**structural_schema(kind)["properties"], "metadata": metadata}
    return dict(_marked_lists({"properties": properties}, ()))


def _marked_lists(schema: JsonObject, path: _Path) -> Iterator[tuple[_Path, str]]:
    if schema.get(PATCH_STRATEGY) == "merge":
        yield path, schema.get(PATCH_KEY, _VALUES)
    for name, inner in schema.get("properties", {}).items():
        yield from _marked_lists(inner, (*path, name))
    if isinstance(items := schema.get("items"), dict):
        yield from _marked_lists(items, (*path, _ITEM))


class _Merge:
    def __init__(self, keys: _MergeKeys) -> None:
        self._keys = keys

    def merge_objects(self, old: JsonObject, patch: JsonObject, path: _Path) -> JsonObject:
        directive = _directive(patch, path)
        if directive == "delete":
            return {}
        if directive == "replace":
            return self.merge_objects({}, {k: v for k, v in patch.items() if k != _PATCH}, path)
        result = _retain_keys(old, patch, path)
        for name, value in patch.items():
            if name.startswith("$"):
                continue
            if value is None:
                result.pop(name, None)
            else:
                result[name] = self._merge_value(result.get(name), value, (*path, name))
        return self._apply_list_directives(result, patch, path)

    def _merge_value(self, old: Any, value: Any, path: _Path) -> Any:
        if isinstance(value, dict):
            return self.merge_objects(old if isinstance(old, dict) else {}, value, path)
        if isinstance(value, list) and path in self._keys:
            return self._merge_list(old if isinstance(old, list) else [], value, path)
        if isinstance(value, list):
            _refuse_directives(value, path)
        return value

    def _merge_list(self, old: list[Any], patch: list[Any], path: _Path) -> list[Any]:
        key = self._keys[path]
        if key == _VALUES:
            known = set(map(canonical_text, old))
            return [*old, *(value for value in patch if canonical_text(value) not in known)]
        directives = [_directive(_check_object(item, path), path) for item in patch]
        if "replace" in directives:
            return [
                item
                for item, directive in zip(patch, directives, strict=True)
                if directive != "replace"
            ]
        items = {_merge_key_value(item, key, path): item for item in old}
        for item, directive in zip(patch, directives, strict=True):
            name = _merge_key_value(item, key, path)
            if directive == "delete":
                items.pop(name, None)
            else:
                before = items.get(name)
                merged = before if isinstance(before, dict) else {}
                items[name] = self.merge_objects(merged, item, (*path, _ITEM))
        return list(items.values())

    def _apply_list_directives(
        self, result: JsonObject, patch: JsonObject, path: _Path
    ) -> JsonObject:
        for directive, value in patch.items():
            if directive.startswith(_DELETE_VALUES):
                name = directive.removeprefix(_DELETE_VALUES)
                gone = set(map(canonical_text, _check_array(value, directive)))
                if isinstance(result.get(name), list):
                    items = result[name]
                    result[name] = [item for item in items if canonical_text(item) not in gone]
        for directive, value in patch.items():
            if directive.startswith(_ORDER):
                name = directive.removeprefix(_ORDER)
                key = self._keys.get((*path, name))
                if key is not None and isinstance(result.get(name), list):
                    order = _check_array(value, directive)
                    result[name] = _order_items(result[name], order, key, (*path, name))
        return result


def _directive(patch: JsonObject, path: _Path) -> str:
    for name in patch:
        if name.startswith("$") and not (
            name in (_PATCH, _RETAIN) or name.startswith((_DELETE_VALUES, _ORDER))
        ):
            raise BadRequest(f"unknown directive {shorten(name)} at {_format_path(path)}")
    found = patch.get(_PATCH, "merge")
    if found not in ("replace", "merge", "delete"):
        raise BadRequest(
            f"{_PATCH} at {_format_path(path)} must be replace, merge or delete, not "
            f"{shorten(str(found))}"
        )
    return str(found)


def _retain_keys(old: JsonObject, patch: JsonObject, path: _Path) -> JsonObject:
    if _RETAIN not in patch:
        return dict(old)
    kept = {name for name in _check_array(patch[_RETAIN], _RETAIN) if isinstance(name, str)}
    extra = [name for name in patch if not name.startswith("$") and name not in kept]
    if extra:
        raise BadRequest(
            f"{_RETAIN} at {_format_path(path)} must list every field of the patch; it lacks "
            f"{shorten(', '.join(extra))}"
        )
    return {name: value for name, value in old.items() if name in kept}


def _order_items(items: list[Any], order: list[Any], key: str, path: _Path) -> list[Any]:
    """Return the items in the requested order. Items that ``order`` omits keep their position."""
    by_name = {_merge_key_value(item, key, path): item for item in items}
    wanted = dict.fromkeys(_merge_key_value(item, key, path) for item in order)
    return [by_name[n] for n in merge_order(list(by_name), [n for n in wanted if n in by_name])]


def _merge_key_value(item: Any, key: str, path: _Path) -> str:
    if key == _VALUES:
        return canonical_text(item)
    found = _check_object(item, path).get(key)
    if found is None:
        raise BadRequest(f"an item of {_format_path(path)} has no {key!r}, its merge key")
    return canonical_text(found)


def _check_object(item: Any, path: _Path) -> JsonObject:
    if not isinstance(item, dict):
        raise BadRequest(
            f"an item of {_format_path(path)} must be an object, not {json_type(item)}"
        )
    return item


def _check_array(value: Any, directive: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"{shorten(directive)} must be an array, not {json_type(value)}")
    return value


def _refuse_directives(items: list[Any], path: _Path) -> None:
    """Raise BadRequest for a directive in a replaced list, where it would be stored as a value."""
    if any(isinstance(item, dict) and any(n.startswith("$") for n in item) for item in items):
        raise BadRequest(
            f"{_format_path(path)} is replaced as a whole; directives are not allowed there"
        )


def _format_path(path: _Path) -> str:
    return shorten(".".join(path)) or "the top of the patch"
