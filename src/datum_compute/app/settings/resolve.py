"""Resolution of settings: a flag takes precedence over the environment, then the file, then the
default.

A flag ``--some-name`` is ``DATUM_SOME_NAME`` in the environment and ``some-name: value`` in the
YAML file of ``--config FILE``. An error message names the source of the invalid value.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from datum_compute.api.meta.yaml import (
    Mark,
    YamlDocument,
    YamlError,
    YamlLimits,
    YamlSyntaxError,
    parse_yaml,
)
from datum_compute.app.settings.server_config import settings_of_config

SETTINGS_CHARS_MAX = 1024 * 1024
_LIMITS = YamlLimits(chars_max=SETTINGS_CHARS_MAX, values_max=100_000)
_SHOW_CONFIG = ["config", "show"]


class Setting(click.Option):
    """A setting of a process: flag, environment variable and key of the settings file."""

    def __init__(
        self,
        flag: str,
        meaning: str,
        *,
        default: str | bool | None = None,
        variable: str = "",
        **options: Any,
    ) -> None:
        self.flag = flag
        self.meaning = meaning
        self.variable = variable or "DATUM_" + flag.upper().replace("-", "_")
        self.default_text = "" if default is None else _text_of(default)
        super().__init__(
            [f"--{flag}/--no-{flag}" if isinstance(default, bool) else f"--{flag}"],
            help=meaning,
            default=default,
            show_default=bool(self.default_text),
            **options,
        )

    @property
    def choices(self) -> Sequence[str]:
        return self.type.choices if isinstance(self.type, click.Choice) else ()

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        return _input_of(ctx).environment.get(self.variable) or None

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        if value is not None:
            _input_of(ctx).texts[self.flag] = _text_of(value)
        return super().type_cast_value(ctx, value)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        return f"--{self.flag}" if ctx is None else self.source(ctx, flag=f"--{self.flag}")

    def source(self, ctx: click.Context, flag: str = "flag") -> str:
        """Return where the value of this setting comes from."""
        assert self.name is not None
        match ctx.get_parameter_source(self.name):
            case ParameterSource.COMMANDLINE:
                return flag
            case ParameterSource.ENVIRONMENT:
                return f"environment {self.variable}"
            case ParameterSource.DEFAULT_MAP:
                return _input_of(ctx).places[self.flag]
            case _:
                return "default"


@dataclass(slots=True)
class _Input:
    """What the settings are resolved from, and the text of every value."""

    environment: Mapping[str, str]
    texts: dict[str, str] = field(default_factory=dict)  # by flag
    places: dict[str, str] = field(default_factory=dict)  # file, line, column and name by flag


def _input_of(ctx: click.Context) -> _Input:
    assert isinstance(ctx.obj, _Input)
    return ctx.obj


@dataclass(frozen=True, slots=True)
class Program:
    """A process and its settings."""

    name: str
    summary: str
    settings: tuple[Setting, ...]

    def context(self, arguments: Sequence[str], environment: Mapping[str, str]) -> click.Context:
        """Return a context whose ``params`` are the settings. Raises ClickException."""
        config = Setting(
            "config",
            "YAML file with further settings.",
            metavar="FILE",
            type=click.Path(path_type=Path),
            is_eager=True,  # before the settings that the file contains
            callback=self._read_file,
        )
        command = click.Command(
            self.name,
            params=[config, *self.settings],
            help=f"{self.summary}\n\n`{self.name} config show` prints each setting and its source.",
            options_metavar="[--config FILE] [--SETTING VALUE ...]",
        )
        return command.make_context(self.name, list(arguments), obj=_Input(environment))

    def _read_file(self, ctx: click.Context, _param: click.Parameter, file: Path | None) -> None:
        if file is not None:
            known = {setting.flag for setting in self.settings}
            _add_defaults(ctx, read_settings(file, known), overrides=True)

    def show_config(self, arguments: Sequence[str], environment: Mapping[str, str]) -> str:
        """Return a table of all settings with value and source."""
        with self.context(arguments, environment) as ctx:
            texts = _input_of(ctx).texts
            rows = [(s.flag, texts.get(s.flag, ""), s.source(ctx)) for s in self.settings]
        rows = [("NAME", "VALUE", "SOURCE"), *rows]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return "\n".join(f"{n:<{widths[0]}}   {v:<{widths[1]}}   {s}" for n, v, s in rows)


def read_server_config(ctx: click.Context, _param: click.Parameter, file: Path | None) -> None:
    """Use the settings of a WorkloadOperator file, below those of ``--config``."""
    if file is not None:
        document = _read_document(file)
        _add_defaults(ctx, settings_of_config(file, document), overrides=False)


def _add_defaults(
    ctx: click.Context, settings: Mapping[str, tuple[str, str]], *, overrides: bool
) -> None:
    """Add text and place of settings, by flag. ``overrides``: also of those that are set."""
    ctx.default_map = {} if ctx.default_map is None else ctx.default_map
    places = _input_of(ctx).places
    for flag, (text, place) in settings.items():
        if overrides or flag not in places:
            ctx.default_map[_parameter(flag)] = text
            places[flag] = place


def _parameter(flag: str) -> str:
    return flag.replace("-", "_")


class Values:
    """Settings by flag name."""

    def __init__(self, context: click.Context) -> None:
        self._context = context

    def __getitem__(self, flag: str) -> Any:
        return self._context.params[_parameter(flag)]

    def require(self, flag: str) -> Any:
        value = self[flag]
        if value is None:
            self.fail(f"--{flag} is required")
        return value

    def fail(self, message: str) -> NoReturn:
        _exit_with(click.UsageError(message, self._context))


def resolve(program: Program, arguments: Sequence[str], environment: Mapping[str, str]) -> Values:
    """Return the settings. Exits after an error, ``--help`` and ``config show``."""
    try:
        if list(arguments[:2]) == _SHOW_CONFIG:
            click.echo(program.show_config(arguments[2:], environment))
            sys.exit(0)
        return Values(program.context(arguments, environment))
    except click.exceptions.Exit as done:  # after --help
        sys.exit(done.exit_code)
    except click.ClickException as error:
        _exit_with(error)


def _exit_with(error: click.ClickException) -> NoReturn:
    error.show()
    sys.exit(error.exit_code)


# --- The settings file
# ``some: {name: value}`` is ``some-name: value``. The value of a setting of the form NAME=VALUE,...
# may be a mapping.


def read_settings(file: Path, known: Collection[str]) -> dict[str, tuple[str, str]]:
    """Return text and place of every setting in the file, by flag. Raises UsageError."""
    document = _read_document(file)
    found: dict[str, tuple[str, str]] = {}
    for name, mark, value in _entries(document.value, document.mark, "", known):
        place = f"{file}:{mark.line}:{mark.column}"
        if name in found:
            raise click.UsageError(f"{place}: {name} is set twice")
        if name not in known:
            raise click.UsageError(f"{place}: {_describe_unknown(name, known)}")
        if value is not None:
            found[name] = (_text_of(value), f"{place}: {name}")
    return found


def _read_document(file: Path) -> YamlDocument:
    try:
        with file.open() as stream:
            text = stream.read(SETTINGS_CHARS_MAX + 1)
        documents = parse_yaml(text, _LIMITS)
    except YamlError as error:
        where = f"{file}:{error.line}:{error.column}" if error.line else str(file)
        why = " cannot be read: " if isinstance(error, YamlSyntaxError) else ": "
        raise click.UsageError(f"{where}{why}{error.message}") from error
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{file} cannot be read: {error}") from error
    if not documents or not isinstance(documents[0].value, dict):
        raise click.UsageError(f"{file} contains no settings: write `name: value` lines")
    return documents[0]


def _entries(
    value: dict[str, Any], mark: Mark, prefix: str, known: Collection[str]
) -> Iterator[tuple[str, Mark, Any]]:
    """Return name, position and value of every setting."""
    assert isinstance(mark.inside, dict)
    for key, inner in value.items():
        name, inside = prefix + key, mark.inside[key]
        if isinstance(inner, dict) and name not in known:
            yield from _entries(inner, inside, f"{name}-", known)
        else:
            yield name, inside, inner


def _text_of(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{key}={_text_of(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ",".join(map(_text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _describe_unknown(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"unknown setting {name}" + (f", did you mean {close[0]}?" if close else "")
