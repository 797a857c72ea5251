"""The documents of a YAML or JSON text, each with the line and column of every field.

A key that stands twice in one mapping is refused: YAML would keep the last one without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from datum_compute.api.codec import JsonObject
from datum_compute.cli.errors import UsageError

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """``places`` by the path of a field, such as ``spec.placements[0].name``; counted from 1."""

    value: JsonObject
    shown: str
    places: Mapping[str, Place]

    def place(self, path: str) -> Place:
        """Of the field, or of the nearest above it that is there."""
        while path and path not in self.places:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.places.get(path, (1, 1))

    def at(self, path: str) -> str:
        line, column = self.place(path)
        return f"{self.shown}:{line}:{column}"


def read_documents(text: str, shown: str) -> list[Document]:
    documents = []
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None or node.tag == "tag:yaml.org,2002:null":
                continue
            places = dict(_places(node, "", shown))
            documents.append(Document(_value(loader, node, shown), shown, places))
    except yaml.MarkedYAMLError as error:
        raise UsageError(f"{_at(shown, error)} is neither YAML nor JSON: {_said(error)}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{shown} is neither YAML nor JSON: {error}") from error
    return documents


def _value(loader: yaml.SafeLoader, node: yaml.Node, shown: str) -> JsonObject:
    if not isinstance(node, yaml.MappingNode):
        mark = node.start_mark
        raise UsageError(f"{shown}:{mark.line + 1}:{mark.column + 1} does not hold an object.")
    value: JsonObject = loader.construct_document(node)
    return value


def _places(node: yaml.Node, path: str, shown: str) -> Iterator[tuple[str, Place]]:
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield f"{path}[{index}]", _place(item)
            yield from _places(item, f"{path}[{index}]", shown)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, inner in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line, column = _place(key)
            if key.value in seen and key.value != "<<":
                raise UsageError(f"{shown}:{line}:{column}: {key.value!r} stands there twice.")
            seen.add(key.value)
            below = f"{path}.{key.value}" if path else key.value
            yield below, (line, column)
            yield from _places(inner, below, shown)


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _at(shown: str, error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark
    return f"{shown}:{mark.line + 1}:{mark.column + 1}" if mark else shown


def _said(error: yaml.MarkedYAMLError) -> str:
    return f"{error.problem or error.context or 'it cannot be read'}."
