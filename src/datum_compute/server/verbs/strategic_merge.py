"""Strategic merge patch, for built-in kinds: a merge patch that knows some lists item by item.

Which lists those are stands in ``_SHARED`` and ``_OF_KIND``: the path of a list and the field
that names its items, or nothing for a list of plain values. All other lists are replaced. Besides
values a patch may carry directives: ``$patch`` (replace, merge, delete), ``$retainKeys``,
``$deleteFromPrimitiveList/<list>`` and ``$setElementOrder/<list>``. To add a kind that has such
lists: a line in ``_OF_KIND``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.api.errors import BadRequest, shorten
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.apply.field_shape import canonical_text
from datum_compute.server.apply.merge import merged_order
from datum_compute.server.encoding.body import json_type

_Path = tuple[str, ...]
_MergeKeys = Mapping[_Path, str]

_VALUES = ""  # the items name themselves
_SHARED: _MergeKeys = {
    ("metadata", "ownerReferences"): "uid",
    ("metadata", "finalizers"): _VALUES,
}
_OF_KIND: Mapping[str, _MergeKeys] = {
    "namespaces": {("status", "conditions"): "type"},
    "serviceaccounts": {("secrets",): "name"},
}

_PATCH, _RETAIN = "$patch", "$retainKeys"
_DELETE_VALUES, _ORDER = "$deleteFromPrimitiveList/", "$setElementOrder/"


def strategically_merged(kind: KindInfo[Any], old: JsonObject, patch: Any) -> JsonObject:
    if not isinstance(patch, dict):
        raise BadRequest("a strategic merge patch must be a JSON object")
    keys = {**_SHARED, **_OF_KIND.get(kind.resource, {})}
    return _Merge(keys).objects(old, patch, ())


class _Merge:
    def __init__(self, keys: _MergeKeys) -> None:
        self._keys = keys

    def objects(self, old: JsonObject, patch: JsonObject, path: _Path) -> JsonObject:
        directive = _directive(patch, path)
        if directive == "delete":
            return {}
        if directive == "replace":
            return self.objects({}, {k: v for k, v in patch.items() if k != _PATCH}, path)
        result = _retained(old, patch, path)
        for name, value in patch.items():
            if name.startswith("$"):
                continue
            if value is None:
                result.pop(name, None)
            else:
                result[name] = self._value(result.get(name), value, (*path, name))
        return self._with_list_directives(result, patch, path)

    def _value(self, old: Any, value: Any, path: _Path) -> Any:
        if isinstance(value, dict):
            return self.objects(old if isinstance(old, dict) else {}, value, path)
        if isinstance(value, list) and path in self._keys:
            return self._lists(old if isinstance(old, list) else [], value, path)
        if isinstance(value, list):
            _refuse_directives(value, path)
        return value

    def _lists(self, old: list[Any], patch: list[Any], path: _Path) -> list[Any]:
        key = self._keys[path]
        if key == _VALUES:
            known = set(map(canonical_text, old))
            return [*old, *(value for value in patch if canonical_text(value) not in known)]
        asked = [_directive(_item(item, path), path) for item in patch]
        if "replace" in asked:
            return [item for item, what in zip(patch, asked, strict=True) if what != "replace"]
        items = {_name(item, key, path): item for item in old}
        for item, what in zip(patch, asked, strict=True):
            name = _name(item, key, path)
            if what == "delete":
                items.pop(name, None)
            else:
                before = items.get(name)
                merged = before if isinstance(before, dict) else {}
                items[name] = self.objects(merged, item, (*path, "[]"))
        return list(items.values())

    def _with_list_directives(
        self, result: JsonObject, patch: JsonObject, path: _Path
    ) -> JsonObject:
        for directive, value in patch.items():
            if directive.startswith(_DELETE_VALUES):
                name = directive.removeprefix(_DELETE_VALUES)
                gone = set(map(canonical_text, _list_of(value, directive)))
                if isinstance(result.get(name), list):
                    items = result[name]
                    result[name] = [item for item in items if canonical_text(item) not in gone]
        for directive, value in patch.items():
            if directive.startswith(_ORDER):
                name = directive.removeprefix(_ORDER)
                key = self._keys.get((*path, name))
                if key is not None and isinstance(result.get(name), list):
                    order = _list_of(value, directive)
                    result[name] = _ordered(result[name], order, key, (*path, name))
        return result


def _directive(patch: JsonObject, path: _Path) -> str:
    for name in patch:
        if name.startswith("$") and not (
            name in (_PATCH, _RETAIN) or name.startswith((_DELETE_VALUES, _ORDER))
        ):
            raise BadRequest(f"unknown directive {shorten(name)} at {_shown(path)}")
    found = patch.get(_PATCH, "merge")
    if found not in ("replace", "merge", "delete"):
        raise BadRequest(
            f"{_PATCH} at {_shown(path)} must be replace, merge or delete, not "
            f"{shorten(str(found))}"
        )
    return str(found)


def _retained(old: JsonObject, patch: JsonObject, path: _Path) -> JsonObject:
    if _RETAIN not in patch:
        return dict(old)
    kept = {name for name in _list_of(patch[_RETAIN], _RETAIN) if isinstance(name, str)}
    extra = [name for name in patch if not name.startswith("$") and name not in kept]
    if extra:
        raise BadRequest(
            f"{_RETAIN} at {_shown(path)} must list every field of the patch; it lacks "
            f"{shorten(', '.join(extra))}"
        )
    return {name: value for name, value in old.items() if name in kept}


def _ordered(items: list[Any], order: list[Any], key: str, path: _Path) -> list[Any]:
    """Items in the order asked for; those it does not speak of keep their place."""
    by_name = {_name(item, key, path): item for item in items}
    wanted = dict.fromkeys(_name(item, key, path) for item in order)
    return [by_name[n] for n in merged_order(list(by_name), [n for n in wanted if n in by_name])]


def _name(item: Any, key: str, path: _Path) -> str:
    if key == _VALUES:
        return canonical_text(item)
    found = _item(item, path).get(key)
    if found is None:
        raise BadRequest(f"an item of {_shown(path)} has no {key!r}, which names it")
    return canonical_text(found)


def _item(item: Any, path: _Path) -> JsonObject:
    if not isinstance(item, dict):
        raise BadRequest(f"an item of {_shown(path)} must be an object, not {json_type(item)}")
    return item


def _list_of(value: Any, directive: str) -> list[Any]:
    if not isinstance(value, list):
        raise BadRequest(f"{shorten(directive)} must be an array, not {json_type(value)}")
    return value


def _refuse_directives(items: list[Any], path: _Path) -> None:
    """A list that is replaced must not take a directive for a value."""
    if any(isinstance(item, dict) and any(n.startswith("$") for n in item) for item in items):
        raise BadRequest(f"{_shown(path)} is replaced as a whole; it takes no directives")


def _shown(path: _Path) -> str:
    return shorten(".".join(path)) or "the top of the patch"
