"""Run a command: parse the arguments, run the verb, print errors, return the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

from datum_compute import __version__
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import StoppedError, UsageError
from datum_compute.cli.groups import compute
from datum_compute.cli.render.output import build_output

MANIFEST_FLAG = "--plugin-manifest"
# Later releases of click raise the help of a group as an error; earlier ones print it.
_HELP_REQUESTS = getattr(click.exceptions, "NoArgsIsHelpError", ())


def run(arguments: Sequence[str], environment: CliEnvironment) -> int:
    if MANIFEST_FLAG in arguments:
        build_output(environment).data(json.dumps(_manifest()))
        return 0
    try:
        return _invoke(list(arguments) or ["--help"], environment)
    except UsageError as error:
        return _report(error, environment, arguments)
    except click.NoSuchOption as error:
        return _report(_unknown_option(error, environment, arguments), environment, arguments)
    except click.UsageError as error:
        if isinstance(error, _HELP_REQUESTS):  # a group of commands without a command
            build_output(environment).data(error.format_message())
            return 0
        path = error.ctx.command_path if error.ctx else environment.program
        failure = UsageError(error.format_message(), f"See: {path} --help")
        return _report(failure, environment, arguments)
    except click.ClickException as error:
        return _report(UsageError(error.format_message()), environment, arguments)
    except (KeyboardInterrupt, click.Abort):
        stopped = StoppedError("Interrupted.", "Run the same command again to continue.")
        return _report(stopped, environment, arguments)


def _unknown_option(
    error: click.NoSuchOption, environment: CliEnvironment, arguments: Sequence[str]
) -> UsageError:
    from datum_compute.cli.groups import suggest_option

    path = error.ctx.command_path if error.ctx else environment.program
    parameters = error.ctx.command.params if error.ctx else []
    shown = [p for p in parameters if not (isinstance(p, click.Option) and p.hidden)]
    known = [name for p in shown for name in p.opts]
    written, suggestion = suggest_option(error.option_name, known, arguments)
    guess = f" Did you mean '{suggestion}'?" if suggestion else ""
    return UsageError(f"No such option '{written}'.{guess}", f"See: {path} --help")


def _invoke(arguments: list[str], environment: CliEnvironment) -> int:
    stdout = sys.stdout
    try:
        result = compute.main(
            arguments,
            prog_name=environment.program,
            complete_var=complete_variable(environment.program),
            standalone_mode=False,
            obj=environment,
        )
    except SystemExit:
        if sys.stdout is stdout:
            raise
        sys.stdout = stdout  # click replaces it when the reader has closed the pipe
        raise BrokenPipeError from None
    return result if isinstance(result, int) else 0


def executable_name(program: str) -> str:
    """Return ``datumctl-compute`` for ``datumctl compute``."""
    return program.replace(" ", "-")


def complete_variable(program: str) -> str:
    """Return the variable with which a shell requests completions."""
    return f"_{executable_name(program)}_COMPLETE".replace("-", "_").upper()


def _report(error: UsageError, environment: CliEnvironment, arguments: Sequence[str]) -> int:
    from datum_compute.cli.render.documents import error_document, to_document

    output = build_output(environment)
    if _wants_json(arguments):
        output.note(json.dumps(to_document(error_document(error))))
    elif error.is_error:
        output.error(error.message, error.hint)
    else:
        for line in filter(None, (error.message, error.hint)):
            output.note(line)
    return error.exit_code


def _wants_json(arguments: Sequence[str]) -> bool:
    """Return True with ``-o json``. Reads the raw arguments, because they may be invalid."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return any(
        word in ("-ojson", "--output=json") or (word in ("-o", "--output") and after == "json")
        for word, after in pairs
    )


def _manifest() -> dict[str, object]:
    return {
        "name": "compute",
        "version": __version__,
        "description": "Run containers in many cities",
        "api_version": 1,
        "min_api_version": 1,
    }
