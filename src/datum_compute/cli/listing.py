"""How every list is printed: one description of its columns, one of its document, all formats.

Data goes to stdout, the line of counts below a table to stderr, so that a pipe sees rows only.
Filters are applied before a listing is made; hence they hold for every format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.jsonpath import compiled_path, value_at
from datum_compute.cli.options import F
from datum_compute.cli.output import Output, one_line, render_table

T = TypeVar("T")

FORMATS = ("table", "wide", "json", "yaml", "name", "csv")
_JSONPATH = "jsonpath="


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    heading: str
    value: Callable[[T], object]
    wide: bool = False  # only in the formats wide and csv


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """``noun`` is what ``-o name`` puts before the slash."""

    noun: str
    columns: Sequence[Column[T]]
    document: Callable[[T], JsonObject]
    name: Callable[[T], str]


class _Format(click.ParamType[str]):
    name = "format"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in FORMATS:
            return value
        if not value.startswith(_JSONPATH):
            self.fail(f"{value!r} is none of {', '.join(FORMATS)}, {_JSONPATH}PATH.", param, ctx)
        try:
            compiled_path(_path(value))
        except ValueError as error:
            self.fail(f"{error}; write for example {_JSONPATH}.items[0].name", param, ctx)
        return value


def list_options(command: F) -> F:
    """``-o`` and ``--no-headers``, as every list has them."""
    command = click.option("--no-headers", is_flag=True, help="Leave the headings out.")(command)
    return click.option(
        *("-o", "--output", "output_format"),
        type=_Format(),
        default="table",
        show_default=True,
        metavar="FORMAT",
        help=f"One of {', '.join(FORMATS)}, {_JSONPATH}PATH.",
    )(command)


def print_listing(
    output: Output,
    listing: Listing[T],
    rows: Sequence[T],
    output_format: str,
    *,
    headers: bool = True,
    footer: str = "",
) -> None:
    match output_format:
        case "json":
            output.json(_documents(listing, rows))
        case "yaml":
            output.yaml(_documents(listing, rows))
        case "name":
            _print_lines(output, [f"{listing.noun}/{listing.name(row)}" for row in rows])
        case "csv":
            output.data(_csv(listing, rows, headers))
        case "table" | "wide":
            _print_table(output, listing, rows, headers=headers, wide=output_format == "wide")
            if footer and headers:
                output.note(footer)
        case path:
            found = value_at(_documents(listing, rows), _path(path))
            output.data("" if found is None else str(found))


def _documents(listing: Listing[T], rows: Sequence[T]) -> JsonObject:
    return {"items": [listing.document(row) for row in rows]}


def _print_table(
    output: Output, listing: Listing[T], rows: Sequence[T], *, headers: bool, wide: bool
) -> None:
    columns = [column for column in listing.columns if wide or not column.wide]
    cells = [[column.value(row) for column in columns] for row in rows]
    if not cells:
        return
    table = render_table([column.heading for column in columns], cells)
    output.data(table if headers else table.partition("\n")[2])


def _csv(listing: Listing[T], rows: Sequence[T], headers: bool) -> str:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    if headers:
        writer.writerow(column.heading for column in listing.columns)
    for row in rows:
        writer.writerow(_cell(column.value(row)) for column in listing.columns)
    return sink.getvalue().rstrip("\n")


def _cell(value: object) -> str:
    """A cell that a spreadsheet does not take for a formula."""
    text = one_line(str(value))
    return f"'{text}" if text[:1] in ("=", "+", "@") else text


def _print_lines(output: Output, lines: Sequence[str]) -> None:
    for line in lines:
        output.data(line)


def _path(text: str) -> str:
    """kubectl's braces may stand around the path."""
    path = text.removeprefix(_JSONPATH)
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1]
    return path
