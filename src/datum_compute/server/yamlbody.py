"""YAML bodies, read as the JSON they stand for.

Anything that JSON cannot say is refused: aliases (a short text may stand for a huge document),
tags, keys that stand twice, several documents. Times stay text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from datum_compute.api.codec import encode
from datum_compute.api.errors import BadRequest, RequestEntityTooLarge
from datum_compute.server.problems import shortened

YAML_BYTES_MAX = 1024 * 1024  # reading YAML is slow, and nobody else is served meanwhile
_DEPTH_MAX = 64
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON")
_FALSE = ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(_NULLS),
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
}
_INT64_MIN, _UINT64_MAX = -(2**63), 2**64 - 1
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,18})")
_EXPONENT = r"[eE][-+]?[0-9]{1,3}"
_NUMBER = re.compile(rf"[-+]?(([0-9]+\.[0-9]*|\.[0-9]+)({_EXPONENT})?|[0-9]+{_EXPONENT})", re.ASCII)
_OTHER_NUMBER = re.compile(r"[-+]?([0-9]+|0[xob][0-9a-f]+|\.inf|\.nan)", re.IGNORECASE)


def decoded_yaml(body: bytes) -> Any:
    if len(body) > YAML_BYTES_MAX:
        raise RequestEntityTooLarge(
            f"Request entity too large: limit is {YAML_BYTES_MAX} for YAML; send JSON instead"
        )
    reader = _Reader()
    try:
        for event in yaml.parse(body.decode(), Loader=_LOADER):
            reader.take(event)
        encode(reader.document)
    except (yaml.YAMLError, UnicodeError, TypeError, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else "not text"
        raise BadRequest(f"the body is not valid YAML: {shortened(first)}") from error
    return reader.document


class _Reader:
    """Builds the document from events, without recursion."""

    def __init__(self) -> None:
        self.document: Any = None
        self._open: list[dict[str, Any] | list[Any]] = []
        self._keys: list[str | None] = []
        self._documents = 0

    def take(self, event: Any) -> None:
        _refuse_specials(event)
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise BadRequest("the body must be one YAML document, not several")
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            self._enter({})
        elif isinstance(event, yaml.SequenceStartEvent):
            self._enter([])
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._open.pop()
            self._keys.pop()

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        value = _resolved(event.value) if event.implicit[0] else event.value
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._keys[-1] = self._key(event.value, self._open[-1])
        else:
            self._put(value)

    def _key(self, text: str, mapping: dict[str, Any]) -> str:
        if text in mapping:
            raise BadRequest(f'the body is not valid YAML: key "{shortened(text)}" stands twice')
        if text == "<<":
            raise BadRequest("the body is not valid YAML: merge keys (<<) are not supported")
        return text

    def _enter(self, container: dict[str, Any] | list[Any]) -> None:
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            raise BadRequest("the body is not valid YAML: a key must be a scalar")
        if len(self._open) >= _DEPTH_MAX:
            raise BadRequest(f"the document is nested more than {_DEPTH_MAX} levels deep")
        self._put(container)
        self._open.append(container)
        self._keys.append(None)

    def _put(self, value: Any) -> None:
        if not self._open:
            self.document = value
            return
        parent, key = self._open[-1], self._keys[-1]
        if isinstance(parent, list):
            parent.append(value)
        elif key is not None:
            parent[key] = value
            self._keys[-1] = None


def _refuse_specials(event: Any) -> None:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise BadRequest("the body is not valid YAML: anchors and aliases are not supported")
    if getattr(event, "tag", None):
        raise BadRequest("the body is not valid YAML: tags are not supported")


def _resolved(text: str) -> Any:
    """The JSON value of a scalar without quotes."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        number = int(text)
        return number if _INT64_MIN <= number <= _UINT64_MAX else float(text)  # as in JSON
    if _NUMBER.fullmatch(text):
        return _finite(text)
    if _OTHER_NUMBER.fullmatch(text):
        raise BadRequest(
            "the body is not valid YAML: write a number in decimal, or quote it: " + shortened(text)
        )
    return text


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise BadRequest(f"the body is not valid YAML: {shortened(text)} is too large a number")
    return value
