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

from datum_compute.api.meta.yaml import (
    Mark,
    YamlDocument,
    YamlError,
    YamlLimits,
    YamlSyntaxError,
    parse_yaml,
)

SETTINGS_CHARS_MAX = 1024 * 1024
_LIMITS = YamlLimits(chars_max=SETTINGS_CHARS_MAX, values_max=100_000)


class SettingsFileError(Exception):
    """The message says where in which file, and what is wrong there."""


def read_settings(file: Path, known: Collection[str]) -> dict[str, Any]:
    document = _read_document(file)
    found: dict[str, Any] = {}
    for name, mark, value in _entries(document.value, document.mark, "", known):
        if name in found:
            raise SettingsFileError(f"{_at(file, mark)}: {name} is set twice")
        if name not in known:
            raise SettingsFileError(f"{_at(file, mark)}: {_unknown(name, known)}")
        found[name] = _text_of(value)
    return found


def _read_document(file: Path) -> YamlDocument:
    try:
        with file.open() as stream:
            text = stream.read(SETTINGS_CHARS_MAX + 1)
        documents = parse_yaml(text, _LIMITS)
    except YamlError as error:
        where = f"{file}:{error.line}:{error.column}" if error.line else str(file)
        why = " cannot be read: " if isinstance(error, YamlSyntaxError) else ": "
        raise SettingsFileError(f"{where}{why}{error.message}") from error
    except (OSError, ValueError) as error:
        raise SettingsFileError(f"{file} cannot be read: {error}") from error
    if not documents or not isinstance(documents[0].value, dict):
        raise SettingsFileError(f"{file} holds no settings: write `name: value` lines")
    return documents[0]


def _entries(
    value: dict[str, Any], mark: Mark, prefix: str, known: Collection[str]
) -> Iterator[tuple[str, Mark, Any]]:
    """Name, position and value of every setting."""
    assert isinstance(mark.inside, dict)
    for key, inner in value.items():
        name, inside = prefix + key, mark.inside[key]
        if isinstance(inner, dict) and name not in known:
            yield from _entries(inner, inside, f"{name}-", known)
        else:
            yield name, inside, inner


def _text_of(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return ",".join(f"{key}={_word(inner)}" for key, inner in value.items())


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"unknown setting {name}" + (f", did you mean {close[0]}?" if close else "")


def _at(file: Path, mark: Mark) -> str:
    return f"{file}:{mark.line}:{mark.column}"
