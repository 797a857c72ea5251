"""Parses YAML into JSON values, with limits on size, number of values and depth.

The server parses request bodies with it; the command line parses manifests and kubeconfigs. The
parser builds values from events without recursion, so that every limit applies before the work.
An alias counts as much as the value it repeats. Tags and duplicate keys are errors. Dates stay
strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from datum_compute.api.errors import shorten

KEY_CHARS_MAX = 1024  # the YAML limit for a key without "?"
# The parser written in Python takes about 20 times as long as libyaml. Without libyaml the limits
# are divided by this, so that parsing takes no longer.
_LOADER: Any = getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader
PARSER_SLOWDOWN = 1 if _LOADER is not yaml.SafeLoader else 20

_TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON")
_FALSE = ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}
_NUMBER_START = frozenset("+-.0123456789")
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_EXPONENT = r"[eE][-+]?[0-9]{1,3}"
_NUMBER = re.compile(rf"[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)({_EXPONENT})?|[0-9]+{_EXPONENT})", re.ASCII)
_OTHER_NUMBER = re.compile(r"[-+]?([0-9]+|0[xob][0-9a-f]+|\.inf|\.nan)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class YamlLimits:
    """Limits on one text. Values and characters of expanded aliases count.

    A container counts as two values: the parser reports where it starts and where it ends.
    """

    chars_max: int
    values_max: int
    depth_max: int = 64
    documents_max: int = 1
    allow_aliases: bool = False


class YamlError(ValueError):
    """The YAML text has no JSON value. Line and column count from 1; 0 is unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column


class YamlSyntaxError(YamlError):
    """The text is not valid YAML."""


class YamlTooLarge(YamlError):
    """The text, or its value with expanded aliases, exceeds a limit."""


class Mark:
    """Line and column of a value, counted from 1, and the marks of the values inside it."""

    __slots__ = ("column", "inside", "line")

    def __init__(self, line: int, column: int) -> None:
        self.line = line
        self.column = column
        self.inside: dict[str, Mark] | list[Mark] | None = None


@dataclass(frozen=True, slots=True)
class YamlDocument:
    value: Any
    mark: Mark


def parse_yaml(text: str, limits: YamlLimits) -> list[YamlDocument]:
    """Return the documents of the text. Raises YamlError, and YamlTooLarge above a limit."""
    if len(text) > limits.chars_max:
        raise YamlTooLarge(f"the text has more than {limits.chars_max} characters")
    builder = _Builder(limits)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.add(event)
    except yaml.MarkedYAMLError as error:
        why = error.problem or error.context or "syntax error"
        raise YamlSyntaxError(shorten(why), *_position(error.problem_mark)) from error
    except yaml.YAMLError as error:
        first = str(error).partition("\n")[0]
        raise YamlSyntaxError(shorten(first) or "syntax error") from error
    return builder.documents


def resolve_scalar(text: str) -> Any:
    """Return the JSON value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if _INT64_MIN <= number <= _UINT64_MAX else float(text)  # as in JSON
    if _NUMBER.fullmatch(text):
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise YamlError(f"{shorten(text)} is too large a number")
        return value
    if _OTHER_NUMBER.fullmatch(text):
        raise YamlError("write a number in decimal, or quote it: " + shorten(text))
    return text


@dataclass(slots=True)
class _Cost:
    values: int
    chars: int


@dataclass(frozen=True, slots=True)
class _Anchor:
    value: Any
    cost: _Cost


@dataclass(slots=True)
class _OpenContainer:
    """A container whose end has not been read."""

    container: dict[str, Any] | list[Any]
    mark: Mark
    anchor: str | None
    before: _Cost
    key: str | None = None
    key_mark: Mark | None = None
    is_merge: bool = False
    merged: list[Any] = field(default_factory=list)


class _Builder:
    """Builds documents from parser events."""

    def __init__(self, limits: YamlLimits) -> None:
        self.documents: list[YamlDocument] = []
        self._limits = limits
        self._open: list[_OpenContainer] = []
        self._anchors: dict[str, _Anchor] = {}
        self._cost = _Cost(0, 0)
        self._value: Any = None
        self._mark = Mark(1, 1)
        self._handlers = {
            yaml.ScalarEvent: self._add_scalar,
            yaml.MappingStartEvent: self._open_mapping,
            yaml.SequenceStartEvent: self._open_sequence,
            yaml.MappingEndEvent: self._close,
            yaml.SequenceEndEvent: self._close,
            yaml.AliasEvent: self._add_alias,
            yaml.DocumentStartEvent: self._start_document,
            yaml.DocumentEndEvent: self._end_document,
        }

    def add(self, event: Any) -> None:
        handle = self._handlers.get(type(event))
        if handle is None:
            return
        try:
            handle(event)
        except YamlError as error:
            if not error.line:
                error.line, error.column = _position(event.start_mark)
            raise

    # --- documents

    def _start_document(self, event: Any) -> None:
        if len(self.documents) >= self._limits.documents_max:
            if self._limits.documents_max == 1:
                raise YamlError("must be one YAML document, not several")
            raise YamlTooLarge(f"the text has more than {self._limits.documents_max} documents")
        self._value, self._mark = None, Mark(*_position(event.start_mark))
        self._anchors = {}

    def _end_document(self, event: Any) -> None:
        self.documents.append(YamlDocument(self._value, self._mark))

    # --- values

    def _add_scalar(self, event: Any) -> None:
        value = event.value
        is_plain = event.implicit[0]
        if event.tag:
            raise YamlError("tags are not supported")
        self._count(1, len(value))
        parent = self._open[-1] if self._open else None
        if parent is not None and parent.key is None and type(parent.container) is dict:
            if event.anchor:
                raise YamlError("a key cannot have an anchor")
            self._start_pair(parent, value, event.start_mark, is_plain)
            return
        if is_plain:
            value = resolve_scalar(value)
        if event.anchor:
            self._check_aliases_allowed()
            self._anchors[event.anchor] = _Anchor(value, _Cost(1, len(event.value)))
        self._put(value, event.start_mark)

    def _start_pair(self, parent: _OpenContainer, key: str, mark: Any, is_plain: bool) -> None:
        if len(key) > KEY_CHARS_MAX:
            raise YamlTooLarge(f"a key is longer than {KEY_CHARS_MAX} characters")
        parent.is_merge = is_plain and key == "<<"
        if parent.is_merge and not self._limits.allow_aliases:
            raise YamlError("merge keys (<<) are not supported")
        if key in parent.container and not parent.is_merge:
            raise YamlError(f'duplicate key "{shorten(key)}"')
        parent.key, parent.key_mark = key, Mark(*_position(mark))

    def _add_alias(self, event: Any) -> None:
        self._check_aliases_allowed()
        found = self._anchors.get(event.anchor)
        if found is None:
            raise YamlError(f'no complete value has the anchor "{shorten(event.anchor)}"')
        self._check_not_key()
        self._count(found.cost.values, found.cost.chars)
        self._put(found.value, event.start_mark)

    def _open_mapping(self, event: Any) -> None:
        self._open_container(event, {})

    def _open_sequence(self, event: Any) -> None:
        self._open_container(event, [])

    def _open_container(self, event: Any, container: dict[str, Any] | list[Any]) -> None:
        if event.tag:
            raise YamlError("tags are not supported")
        self._check_not_key()
        if event.anchor:
            self._check_aliases_allowed()
        if len(self._open) >= self._limits.depth_max:
            raise YamlError(f"values are nested more than {self._limits.depth_max} levels deep")
        before = _Cost(self._cost.values, self._cost.chars)
        self._count(2, 0)
        mark = self._put(container, event.start_mark)
        mark.inside = {} if type(container) is dict else []
        self._open.append(_OpenContainer(container, mark, event.anchor, before))

    def _close(self, event: Any) -> None:
        closed = self._open.pop()
        if closed.merged:
            _merge(closed)
        if closed.anchor:
            values = self._cost.values - closed.before.values
            chars = self._cost.chars - closed.before.chars
            self._anchors[closed.anchor] = _Anchor(closed.container, _Cost(values, chars))

    def _put(self, value: Any, yaml_mark: Any) -> Mark:
        """Add a value to the innermost open container and return its mark."""
        if not self._open:
            self._value = value
            self._mark = mark = Mark(yaml_mark.line + 1, yaml_mark.column + 1)
            return mark
        parent = self._open[-1]
        container, inside = parent.container, parent.mark.inside
        if type(container) is list:
            container.append(value)
            mark = Mark(yaml_mark.line + 1, yaml_mark.column + 1)
            inside.append(mark)  # type: ignore[union-attr]
            return mark
        key, key_mark = parent.key, parent.key_mark
        assert key is not None
        assert key_mark is not None
        parent.key = None
        if parent.is_merge:
            parent.merged.append(value)
        else:
            container[key] = value  # type: ignore[call-overload]
            inside[key] = key_mark  # type: ignore[index, call-overload]
        return key_mark

    # --- limits

    def _count(self, values: int, chars: int) -> None:
        cost, limits = self._cost, self._limits
        cost.values += values
        cost.chars += chars
        if cost.values > limits.values_max:
            raise YamlTooLarge(f"the text has more than {limits.values_max} values")
        if cost.chars > limits.chars_max:
            raise YamlTooLarge(
                f"the text has more than {limits.chars_max} characters with aliases expanded"
            )

    def _check_not_key(self) -> None:
        if self._open and self._open[-1].key is None and type(self._open[-1].container) is dict:
            raise YamlError("a key must be a scalar")

    def _check_aliases_allowed(self) -> None:
        if not self._limits.allow_aliases:
            raise YamlError("anchors and aliases are not supported")


def _merge(closed: _OpenContainer) -> None:
    """Add the pairs of merge keys. Pairs of the mapping win over merged pairs, and earlier merged
    mappings win over later ones."""
    container = closed.container
    assert isinstance(container, dict)
    for source in closed.merged:
        for mapping in source if isinstance(source, list) else [source]:
            if not isinstance(mapping, dict):
                raise YamlError("the value of a merge key (<<) must be a mapping")
            for key, value in mapping.items():
                container.setdefault(key, value)


def _position(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
