"""Checks that the schema of a custom kind is structural: it can prune, default and validate.

Every node has a type; ``allOf``, ``anyOf``, ``oneOf`` and ``not`` only restrict the fields that the
rest describes. Each problem names its field. Unsupported keywords are refused when the kind is
defined; they are not ignored when an object is written.

All versions of a definition share one ``SchemaBudget``. It counts the cost of checking, compiling
and storing the schemas before that work starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.errors import Cause, Invalid, RequestEntityTooLarge
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.schema.derive import EMBEDDED, INT_OR_STRING, PRESERVE
from datum_compute.api.schema.regex import Search, compile_search
from datum_compute.api.schema.report import STEPS_MAX, CheckBudget
from datum_compute.api.schema.validate import Compiler, ValidationReport

_TYPES = ("object", "array", "string", "integer", "number", "boolean")
_INT64_LIMIT = 2.0**63  # the smallest float above all 64-bit integers
_LIST_TYPE, _LIST_KEYS = "x-kubernetes-list-type", "x-kubernetes-list-map-keys"
_MAP_TYPE = "x-kubernetes-map-type"
_CEL = "x-kubernetes-validations"

_NUMBER, _COUNT, _TEXT, _FLAG, _LIST = (int, float), (int,), (str,), (bool,), (list,)
_ANY_TYPE: tuple[type, ...] = (object,)
_KEYWORDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("type", "description", "title", "format", "pattern"), _TEXT),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum", "nullable", "uniqueItems"), _FLAG),
    **dict.fromkeys((PRESERVE, EMBEDDED, INT_OR_STRING), _FLAG),
    **dict.fromkeys(("enum", "required", "allOf", "anyOf", "oneOf", _LIST_KEYS), _LIST),
    **dict.fromkeys((_LIST_TYPE, _MAP_TYPE), _TEXT),
    **dict.fromkeys(("properties", "items", "not", "externalDocs"), (dict,)),
    "additionalProperties": (dict, bool),
    **dict.fromkeys(("default", "example"), _ANY_TYPE),
}
_UNSUPPORTED_KEYWORDS = {
    "$ref": "references are not supported; write the schema out",
    "definitions": "references are not supported; write the schema out",
    "dependencies": "is not part of a structural schema",
    "patternProperties": "is not part of a structural schema; use additionalProperties",
    "additionalItems": "is not part of a structural schema",
    "id": "is not part of a structural schema",
    _CEL: "validation rules (CEL) are not supported yet; remove them, or express them with "
    "pattern, enum, minimum, maximum, oneOf or not",
}
NODES_MAX = 10_000  # in all versions of a definition
PROBLEMS_MAX = 100
PATTERN_STATES_MAX = 20_000  # states plus characters of all patterns in all versions
# If a character can cost more steps than this, a value of maxLength must fit into STEPS_MAX.
COSTLY_CHARACTER_STEPS = 100
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_PLAIN_SCALAR_KEYWORDS = frozenset({"type", "description"})
_BRANCHES = ("allOf", "anyOf", "oneOf")
_FORBIDDEN_IN_BRANCHES = (
    "description",
    "title",
    "default",
    "nullable",
    "additionalProperties",
    PRESERVE,
)


@dataclass(slots=True)
class SchemaBudget:
    """The remaining budget for the schemas of one definition."""

    nodes_left: int = NODES_MAX
    states_left: int = PATTERN_STATES_MAX
    patterns: set[str] = field(default_factory=set)  # repeated patterns count once
    defaults: CheckBudget = field(default_factory=lambda: CheckBudget(STEPS_MAX // 6))

    def count_nodes(self, schema: Any) -> bool:
        """Count the nodes of a schema; return False above the limit. Malformed nodes count too."""
        level = [schema]
        while level:
            self.nodes_left -= len(level)
            if self.nodes_left < 0:
                return False
            level = [inner for node in level for inner in self._inner_nodes(node)]
        return True

    def _inner_nodes(self, schema: Any) -> Iterator[Any]:
        """Yield the nodes directly below a node. A branch counts twice, because every value is
        checked against each branch."""
        if not isinstance(schema, dict):
            return
        for keyword in schema.keys() & _KEYWORDS_WITH_NODES:
            match schema[keyword]:
                case dict() as fields if keyword == "properties":
                    yield from fields.values()
                case list() as branches if keyword in _BRANCHES:
                    self.nodes_left -= len(branches)
                    yield from branches
                case dict() as inner:
                    yield inner

    def add_pattern(self, pattern: str) -> Search:
        """Compile and count a pattern. Raises re.error if it is not supported or too costly."""
        if pattern not in self.patterns and self.states_left >= 0:
            self.patterns.add(pattern)
            self.states_left -= len(pattern)  # to parse it
            self.states_left -= compile_search(pattern).states
        if self.states_left < 0:
            raise re.error(
                f"the patterns of the definition have more than {PATTERN_STATES_MAX} states "
                "and characters together; use fewer or simpler ones"
            )
        return compile_search(pattern)


_KEYWORDS_WITH_NODES = frozenset(
    {"properties", "items", "additionalProperties", "allOf", "anyOf", "oneOf", "not"}
)


def schema_problems(schema: JsonObject, path: str, budget: SchemaBudget) -> list[Cause]:
    """Return why the schema of a version is not structural: at most PROBLEMS_MAX problems."""
    if not budget.count_nodes(schema):
        why = (
            f"the schemas of the definition have more than {NODES_MAX} nodes "
            "(properties and items, and twice the branches of allOf, anyOf and oneOf, in all "
            "versions); "
            "describe less, or use x-kubernetes-preserve-unknown-fields"
        )
        return [Cause.too_many(path, why)]
    found = list(_root_problems(schema, path))
    if schema.get("type") == "object":
        _find_problems(schema, path, budget, found)
        if not found:
            found += _default_problems(schema, path, budget)
    return found[:PROBLEMS_MAX]


def _root_problems(schema: JsonObject, path: str) -> Iterator[Cause]:
    if schema.get("type") != "object":
        yield Cause.invalid(f"{path}.type", "must be object at the root", schema.get("type"))
        return
    for keyword in (INT_OR_STRING, EMBEDDED, "nullable"):
        if schema.get(keyword):
            yield Cause.forbidden(f"{path}.{keyword}", "must not be set at the root")
    metadata = schema.get("properties", {})
    metadata = metadata.get("metadata", {}) if isinstance(metadata, dict) else {}
    inside = metadata.get("properties", {}) if isinstance(metadata, dict) else {}
    for name in inside if isinstance(inside, dict) else ():
        if name not in ("name", "generateName"):
            where = f"{path}.properties[metadata].properties[{name}]"
            yield Cause.forbidden(
                where, "only name and generateName of the metadata can be restricted"
            )


def _find_problems(schema: JsonObject, path: str, budget: SchemaBudget, found: list[Cause]) -> None:
    """Add the problems of a node and of the nodes below it to ``found``."""
    if _is_plain_scalar(schema) or len(found) > PROBLEMS_MAX:
        return
    keyword_problems = _keyword_problems(schema, path)
    if keyword_problems:
        found += keyword_problems
        return
    found += _type_problems(schema, path)
    found += _list_problems(schema, path)
    found += _value_problems(schema, path, budget)
    for name, inner in _children(schema):
        _find_problems(inner, f"{path}.{name}", budget, found)
    for name, inner in _branches(schema):
        _find_branch_problems(inner, schema, f"{path}.{name}", budget, found)


def _is_plain_scalar(schema: JsonObject) -> bool:
    """Return True for a node with only a type and a description, which needs no further checks."""
    return (
        schema.keys() <= _PLAIN_SCALAR_KEYWORDS
        and type(kind := schema.get("type")) is str
        and kind in _SCALARS
        and isinstance(schema.get("description", ""), str)
    )


def _keyword_problems(schema: JsonObject, path: str) -> list[Cause]:
    """Return unknown keywords, and keywords with values of the wrong type."""
    found: list[Cause] = []
    for keyword, value in schema.items():
        expected = _KEYWORDS.get(keyword, ())
        if type(value) not in expected and expected is not _ANY_TYPE:
            found.append(_keyword_problem(keyword, value, f"{path}.{keyword}"))
    for keyword in _BRANCHES:
        if keyword in schema:
            for index, inner in enumerate(_list_value(schema, keyword)):
                if not isinstance(inner, dict):
                    found.append(
                        Cause.invalid(f"{path}.{keyword}[{index}]", "must be a schema", inner)
                    )
    if _has_properties(schema):
        for name, inner in schema["properties"].items():
            if not isinstance(inner, dict):
                found.append(Cause.invalid(f"{path}.properties[{name}]", "must be a schema", inner))
    if any(not isinstance(name, str) for name in _list_value(schema, "required")):
        found.append(
            Cause.invalid(f"{path}.required", "must be a list of names", schema["required"])
        )
    return found[:PROBLEMS_MAX]


def _keyword_problem(keyword: str, value: Any, where: str) -> Cause:
    if keyword in _UNSUPPORTED_KEYWORDS:
        return Cause.forbidden(where, _UNSUPPORTED_KEYWORDS[keyword])
    if keyword not in _KEYWORDS:
        return Cause.forbidden(where, "is not a keyword of a structural schema; remove it")
    return Cause.invalid(where, "has a value of the wrong type", value)


def _type_problems(schema: JsonObject, path: str) -> Iterator[Cause]:
    found = schema.get("type")
    if schema.get(INT_OR_STRING):
        if found is not None:
            yield Cause.forbidden(f"{path}.type", f"must be empty beside {INT_OR_STRING}")
    elif found is None and not schema.get(PRESERVE):
        yield Cause.required(f"{path}.type", "must not be empty for specified object fields")
    elif found is not None and found not in _TYPES:
        yield Cause.unsupported(f"{path}.type", found, _TYPES)
    if "properties" in schema and "additionalProperties" in schema:
        yield Cause.forbidden(
            f"{path}.additionalProperties", "cannot be combined with properties; use one of them"
        )
    if schema.get("additionalProperties") is False:
        yield Cause.forbidden(
            f"{path}.additionalProperties", "must not be false; unknown fields are pruned"
        )
    if found == "array" and "items" not in schema:
        yield Cause.required(f"{path}.items", "must be specified for arrays")
    if found not in (None, "object") and ("properties" in schema or schema.get(PRESERVE)):
        yield Cause.invalid(f"{path}.type", "must be object here", found)
    if schema.get(EMBEDDED) and found != "object":
        yield Cause.invalid(f"{path}.type", f"must be object beside {EMBEDDED}", found)
    if PRESERVE in schema and schema[PRESERVE] is False:
        yield Cause.invalid(f"{path}.{PRESERVE}", "must be true or absent", False)
    if schema.get("uniqueItems"):
        yield Cause.forbidden(f"{path}.uniqueItems", f"use {_LIST_TYPE}: set")


def _list_problems(schema: JsonObject, path: str) -> Iterator[Cause]:
    kind = schema.get(_LIST_TYPE)
    if kind is not None and schema.get("type") != "array":
        yield Cause.invalid(
            f"{path}.type", f"must be array beside {_LIST_TYPE}", schema.get("type")
        )
    elif kind not in (None, "atomic", "set", "map"):
        yield Cause.unsupported(f"{path}.{_LIST_TYPE}", kind, ("atomic", "set", "map"))
    if schema.get(_MAP_TYPE) not in (None, "atomic", "granular"):
        yield Cause.unsupported(f"{path}.{_MAP_TYPE}", schema[_MAP_TYPE], ("atomic", "granular"))
    if kind != "map":
        if _LIST_KEYS in schema:
            yield Cause.forbidden(f"{path}.{_LIST_KEYS}", f"needs {_LIST_TYPE}: map")
        return
    keys, items = schema.get(_LIST_KEYS, []), schema.get("items", {})
    if not keys:
        yield Cause.required(f"{path}.{_LIST_KEYS}", f"{_LIST_TYPE} map needs its keys")
    fields = items.get("properties", {}) if isinstance(items, dict) else {}
    for index, key in enumerate(keys):
        field = fields.get(key) if isinstance(key, str) and isinstance(fields, dict) else None
        where = f"{path}.{_LIST_KEYS}[{index}]"
        if not isinstance(field, dict):
            yield Cause.invalid(where, "must be a property of the items", key)
        elif key not in items.get("required", ()) and "default" not in field:
            yield Cause.required(
                f"{path}.items.properties[{key}]", "a key is required or has a default"
            )


def _value_problems(schema: JsonObject, path: str, budget: SchemaBudget) -> Iterator[Cause]:
    if "pattern" in schema:
        yield from _pattern_problems(schema, path, budget)
    if "enum" in schema and not schema["enum"]:
        yield Cause.required(f"{path}.enum", "must list at least one value")
    if schema.get("type") == "integer":
        for keyword in ("minimum", "maximum"):
            limit = schema.get(keyword)
            if isinstance(limit, int) and not -_INT64_LIMIT <= float(limit) < _INT64_LIMIT:
                why = "does not fit into a 64-bit integer when it is read as a float"
                yield Cause.invalid(f"{path}.{keyword}", why, limit)
    if schema.get("multipleOf") is not None and schema["multipleOf"] <= 0:
        yield Cause.invalid(f"{path}.multipleOf", "must be greater than 0", schema["multipleOf"])


def _pattern_problems(schema: JsonObject, path: str, budget: SchemaBudget) -> Iterator[Cause]:
    pattern, longest = schema["pattern"], schema.get("maxLength")
    try:
        search = budget.add_pattern(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        yield Cause.invalid(f"{path}.pattern", f"cannot be used: {error}", pattern)
        return
    if longest is None or search.character_steps < COSTLY_CHARACTER_STEPS:
        return
    if longest * search.character_steps > STEPS_MAX:
        why = (
            f"a value of maxLength characters can take {longest * search.character_steps} steps "
            f"to match, at most {STEPS_MAX} are allowed; simplify the pattern, or set maxLength "
            f"to at most {STEPS_MAX // search.character_steps}"
        )
        yield Cause.invalid(f"{path}.pattern", why, pattern)


def _find_branch_problems(
    schema: JsonObject, outer: JsonObject, path: str, budget: SchemaBudget, found: list[Cause]
) -> None:
    """Add the problems of a branch. It may only restrict fields that ``outer`` describes."""
    if len(found) > PROBLEMS_MAX:
        return
    keyword_problems = _keyword_problems(schema, path)
    if keyword_problems:
        found += keyword_problems
        return
    for keyword in _FORBIDDEN_IN_BRANCHES:
        if keyword in schema:
            why = "belongs outside allOf, anyOf, oneOf and not"
            found.append(Cause.forbidden(f"{path}.{keyword}", why))
    if "type" in schema and not outer.get(INT_OR_STRING):
        found.append(Cause.forbidden(f"{path}.type", "belongs outside allOf, anyOf, oneOf and not"))
    found += _value_problems(schema, path, budget)
    described = outer.get("properties", {})
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.properties[{name}]"
        if name in described:
            _find_branch_problems(inner, described[name], where, budget, found)
        elif not outer.get(PRESERVE):
            why = "is not described outside of allOf, anyOf, oneOf and not; describe it there"
            found.append(Cause.required(where, why))
    if "items" in schema:
        items = outer.get("items", {})
        _find_branch_problems(schema["items"], items, f"{path}.items", budget, found)
    for name, inner in _branches(schema):
        _find_branch_problems(inner, outer, f"{path}.{name}", budget, found)


def _default_problems(schema: JsonObject, path: str, budget: SchemaBudget) -> Iterator[Cause]:
    """A default must be what the server would store: valid, with nothing to prune."""
    compiler = Compiler()
    for where, node in _nodes_with_default(schema, path):
        report = ValidationReport(budget=budget.defaults)
        try:
            if node["default"] is None and not node.get("nullable"):
                report.fail_invalid("", None, "must not be null unless nullable is true")
            else:
                compiler.check(node)(node["default"], "", report)
        except (Invalid, RequestEntityTooLarge):
            why = (
                "the defaults of the definition, with the defaults inside of them, are "
                "too large; use smaller ones"
            )
            yield Cause.too_long(f"{where}.default", why)
            return
        for cause in report.errors:
            field = ".".join(filter(None, (f"{where}.default", cause.field)))
            yield Cause(field, cause.reason, cause.message)
        for name in report.unknown:
            yield Cause.invalid(
                f"{where}.default.{name}", "would be pruned; describe it first", name
            )


def _nodes_with_default(schema: JsonObject, path: str) -> Iterator[tuple[str, JsonObject]]:
    remaining = [(path, schema)]
    while remaining:
        where, node = remaining.pop()
        if "default" in node:
            yield where, node
        remaining += [(f"{where}.{name}", inner) for name, inner in _children(node)]


def _children(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for name, inner in schema.get("properties", {}).items():
        yield f"properties[{name}]", inner
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield keyword, schema[keyword]


def _branches(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, inner in enumerate(schema.get(keyword, ())):
            yield f"{keyword}[{index}]", inner
    if "not" in schema:
        yield "not", schema["not"]


def _list_value(schema: JsonObject, keyword: str) -> Iterable[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else ()


def _has_properties(schema: JsonObject) -> bool:
    return isinstance(schema.get("properties"), dict)
