"""One parser for flags, environment and file: the later layer wins, each is checked alike.

A flag ``--some-name`` is ``DATUM_SOME_NAME`` in the environment and ``some-name: value`` in a YAML
file (``--config FILE``, ``settingsfile.py``). What is wrong is said with the place it came from.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Mapping, Sequence
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

# --- The settings that a YAML file gives, by the names of their flags
# ``some: {name: value}`` is ``some-name: value``; the value of a setting that takes NAME=VALUE,...
# may be a mapping too. Every setting is known and stands there once, however it is written: what is
# wrong is said with its line and column.


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


# --- layers


_PREFIX = "DATUM_"
# Names that others have given already.
_OTHER_NAMES = {"kubeconfig": "KUBECONFIG", "otlp-endpoint": "OTEL_EXPORTER_OTLP_ENDPOINT"}


def environment_name(flag: str) -> str:
    return _OTHER_NAMES.get(flag, _PREFIX + flag.upper().replace("-", "_"))


def flags_of(parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
    """By name without dashes, in order; not ``--help``."""
    named = {a.option_strings[0].removeprefix("--"): a for a in parser._actions if a.dest != "help"}
    return {name: action for name, action in named.items() if not name.startswith("-")}


def merged(
    parser: argparse.ArgumentParser, arguments: Sequence[str], environment: Mapping[str, str]
) -> argparse.Namespace:
    """flag > environment > file > default."""
    named = {name: environment.get(environment_name(name), "") for name in flags_of(parser)}
    given = {name: value for name, value in named.items() if value}
    layers = [
        (_as_arguments(parser, given, "environment"), "environment"),
        (list(arguments), ""),
    ]
    file = _config_file(arguments, given)
    if file is not None:
        layers.insert(0, (_from_file(parser, file), str(file)))
    result = argparse.Namespace()
    for layer, source in layers:
        result = _parsed(parser, layer, result, source)
    return result


def _parsed(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str],
    earlier: argparse.Namespace,
    source: str,
) -> argparse.Namespace:
    program = parser.prog
    parser.prog = f"{program} ({source})" if source else program
    try:
        return parser.parse_args(arguments, earlier)
    finally:
        parser.prog = program


def _config_file(arguments: Sequence[str], named: Mapping[str, str]) -> Path | None:
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument("--config", type=Path)
    found = finder.parse_known_args(arguments)[0].config or named.get("config")
    return Path(found) if found else None


def _from_file(parser: argparse.ArgumentParser, file: Path) -> list[str]:
    known = [name for name in flags_of(parser) if name != "config"]
    try:
        return _as_arguments(parser, read_settings(file, known), str(file))
    except SettingsFileError as error:
        parser.error(str(error))


def _as_arguments(
    parser: argparse.ArgumentParser, values: Mapping[str, Any], source: str
) -> list[str]:
    """Values of the environment or a file, as the flags they stand for."""
    known, arguments = flags_of(parser), []
    for name, value in values.items():
        if isinstance(known[name], argparse.BooleanOptionalAction):
            arguments.append(f"--{name}" if _truth(parser, name, value, source) else f"--no-{name}")
        else:
            arguments.append(f"--{name}={value}")
    return arguments


def _truth(parser: argparse.ArgumentParser, name: str, value: Any, source: str) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0", "yes", "no"):
        parser.error(f"{source}: {name} must be true or false, not {value!r}")
    return text in ("true", "1", "yes")
