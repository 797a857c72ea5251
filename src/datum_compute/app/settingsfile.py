"""The settings that a YAML file gives, by the names of their flags.

``some: {name: value}`` is ``some-name: value``; the value of a setting that takes NAME=VALUE,...
may be a mapping too. Every setting is known and stands there once, however it is written: what is
wrong is said with its line and column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml


class SettingsFileError(Exception):
    """The message says where in which file, and what is wrong there."""


def read_settings(file: Path, known: Collection[str]) -> dict[str, Any]:
    try:
        loader = yaml.SafeLoader(file.read_text())
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise SettingsFileError(f"{file} holds no settings: write `name: value` lines")
        found: dict[str, Any] = {}
        for name, key, value in _entries(node, "", known):
            if name in found:
                raise SettingsFileError(f"{_at(file, key)}: {name} stands there twice")
            if name not in known:
                raise SettingsFileError(f"{_at(file, key)}: {_unknown(name, known)}")
            _refuse_twins(file, value)
            found[name] = _text_of(loader.construct_document(value))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise SettingsFileError(f"{file} cannot be read: {error}") from error
    return found


def _entries(
    node: yaml.MappingNode, prefix: str, known: Collection[str]
) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Name, where it stands, and value of every setting."""
    for key, value in node.value:
        name = prefix + str(key.value)
        if isinstance(value, yaml.MappingNode) and name not in known:
            yield from _entries(value, f"{name}-", known)
        else:
            yield name, key, value


def _refuse_twins(file: Path, node: yaml.Node) -> None:
    """Of ``capacity: {cpu: 1, cpu: 2}`` YAML would keep the last one without a word."""
    if not isinstance(node, yaml.MappingNode):
        return
    seen: list[str] = []
    for key, _ in node.value:
        if key.value in seen:
            raise SettingsFileError(f"{_at(file, key)}: {key.value} stands there twice")
        seen.append(key.value)


def _text_of(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return ",".join(f"{key}={_word(inner)}" for key, inner in value.items())


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"unknown setting {name}" + (f", did you mean {close[0]}?" if close else "")


def _at(file: Path, node: yaml.Node) -> str:
    mark = node.start_mark
    return f"{file}:{mark.line + 1}:{mark.column + 1}"
