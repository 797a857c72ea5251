"""Prints lists and documents in every format, from one description of columns and fields.

Data goes to stdout, and the summary below a table to stderr, so that a pipe contains only rows.
Filters are applied before, so that they apply to every format.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import click

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.json_path import compile_path, value_at
from datum_compute.api.meta.objects import ApiObject
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.cli.options import F
from datum_compute.cli.render.documents import OutputDocument, to_document
from datum_compute.cli.render.output import Output, one_line, render_age, render_json

T = TypeVar("T")

FORMATS = ("table", "wide", "json", "yaml", "name", "csv")
_JSONPATH = "jsonpath="


@dataclass(frozen=True, slots=True)
class ListColumn(Generic[T]):
    heading: str
    value: Callable[[T], object]
    wide: bool = False  # only in the formats wide and csv


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """``noun`` is the type in the output of ``-o name``, before the slash."""

    noun: str
    columns: Sequence[ListColumn[T]]
    document: Callable[[T], OutputDocument]
    name: Callable[[T], str]


def with_namespace(listing: Listing[T], namespace: Callable[[T], str]) -> Listing[T]:
    """Return the listing with a column for the namespace."""
    column: ListColumn[T] = ListColumn("NAMESPACE", namespace)
    return replace(listing, columns=(column, *listing.columns))


class _Format(click.ParamType[str]):
    name = "format"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value in FORMATS:
            return value
        if not value.startswith(_JSONPATH):
            self.fail(f"{value!r} is none of {', '.join(FORMATS)}, {_JSONPATH}PATH.", param, ctx)
        try:
            compile_path(_path(value))
        except ValueError as error:
            self.fail(f"{error}; write for example {_JSONPATH}.items[0].name", param, ctx)
        return value


def list_options(command: F) -> F:
    """Add ``-o`` and ``--no-headers``, the options of all lists."""
    command = click.option("--no-headers", is_flag=True, help="Omit the headings.")(command)
    return read_options(command)


def print_listing(
    output: Output,
    listing: Listing[T],
    rows: Sequence[T],
    output_format: str,
    *,
    headers: bool = True,
    footer: str = "",
    summary: OutputDocument | None = None,
) -> None:
    """Print a list: ``footer`` below a table, ``summary`` beside the items of a document."""
    document = _documents(listing, rows)
    if summary is not None:
        document |= to_document(summary)
    match output_format:
        case "json":
            output.json(document)
        case "yaml":
            output.yaml(document)
        case "name":
            _print_lines(output, [f"{listing.noun}/{listing.name(row)}" for row in rows])
        case "csv":
            output.data(_csv(listing, rows, headers))
        case "table" | "wide":
            _print_table(output, listing, rows, headers=headers, wide=output_format == "wide")
            if footer and headers:
                output.note(footer)
        case path:
            output.data(_found_text(document, _path(path)))


def _documents(listing: Listing[T], rows: Sequence[T]) -> JsonObject:
    return {"items": [to_document(listing.document(row)) for row in rows]}


def _print_table(
    output: Output, listing: Listing[T], rows: Sequence[T], *, headers: bool, wide: bool
) -> None:
    columns = [column for column in listing.columns if wide or not column.wide]
    cells = [[column.value(row) for column in columns] for row in rows]
    if not cells:
        return
    table = output.table([column.heading for column in columns], cells)
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
    """Escape a cell that a spreadsheet would treat as a formula."""
    text = one_line(str(value))
    return f"'{text}" if text[:1] in ("=", "+", "@") else text


def _print_lines(output: Output, lines: Sequence[str]) -> None:
    for line in lines:
        output.data(line)


def _path(text: str) -> str:
    """Return the path without the optional braces of kubectl."""
    path = text.removeprefix(_JSONPATH)
    if path.startswith("{") and path.endswith("}"):
        path = path[1:-1]
    return path


def read_options(command: F) -> F:
    """Add ``-o``, the option of all commands that show one object."""
    return click.option(
        *("-o", "--output", "output_format"),
        type=_Format(),
        default="table",
        show_default=True,
        metavar="FORMAT",
        help=f"Output format: {', '.join(FORMATS)} or {_JSONPATH}PATH.",
    )(command)


def print_document(
    output: Output,
    output_format: str,
    document: Callable[[], OutputDocument],
    lines: Sequence[tuple[str, str]] | Callable[[], None],
    name: str,
) -> None:
    """Print one object.

    ``document`` is only called if a format prints it. ``lines`` are titles with texts (empty
    texts are omitted), or a function that prints a table. ``name`` is the output of ``-o name``.
    """
    match output_format:
        case "json":
            output.json(to_document(document()))
        case "yaml":
            output.yaml(to_document(document()))
        case "name":
            output.data(name)
        case "csv":
            output.data(_document_csv(to_document(document())))
        case "table" | "wide":
            if callable(lines):
                lines()
            else:
                print_fields(output, lines)
        case path:
            output.data(_found_text(to_document(document()), _path(path)))


def _found_text(document: JsonObject, path: str) -> str:
    """Return the values of a path, separated by spaces; ``[*]`` selects every item of a list."""
    first, *others = path.split("[*]")
    found = [value_at(document, first)]
    for step in others:
        items = [item for value in found if isinstance(value, list) for item in value]
        found = [value_at(item, step) for item in items]
    return " ".join(_one_text(value) for value in found if value is not None)


def _one_text(value: object) -> str:
    return value if isinstance(value, str) else render_json(value)


def print_fields(output: Output, lines: Sequence[tuple[str, str]]) -> None:
    """Titles and texts in two columns."""
    shown = [(title, text) for title, text in lines if text]
    width = max((len(title) for title, _ in shown), default=0) + 1
    for title, text in shown:
        output.data(f"{title + ':':<{width}}  {text}")


def _document_csv(document: JsonObject) -> str:
    """Return a line for each field that is not a list or an object."""
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(("FIELD", "VALUE"))
    for field, value in document.items():
        if not isinstance(value, dict | list):
            writer.writerow((field, _cell("" if value is None else value)))
    return sink.getvalue().rstrip("\n")


def age_of(obj: ApiObject, now: float) -> str:
    return age_since(obj.metadata.creation_timestamp, now)


def age_since(timestamp: str | None, now: float) -> str:
    """Return the age of a time; a dash if it is unknown (empty, or the default of 1970)."""
    if not timestamp or timestamp.startswith("1970-"):
        return "-"
    return render_age(now - parse_timestamp(timestamp))
