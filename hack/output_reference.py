"""Generates docs/reference/cli-output.md: exit codes, errors, JSON documents and events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import inspect

from datum_compute.cli.errors import ERRORS
from datum_compute.cli.render.documents import (
    DOCUMENTS,
    LIST_SUMMARIES,
    LISTS,
    DeletedInstance,
    ErrorDocument,
    OutputDocument,
)
from datum_compute.cli.render.events import EVENTS

Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]

_INTRODUCTION = """\
Data goes to stdout, everything else (plans, progress, prompts, errors) to stderr. Commands that
read accept `-o table|wide|json|yaml|name|csv|jsonpath=PATH`; filters apply to every format.
Commands that change something or wait accept `-o json` and print one event per line. Times are RFC
3339 in UTC. Later releases only add fields.

"""
_DIFF_CODES = """\
`diff` and `rollout diff` exit with 0 without differences, with 1 with differences, and with 2 or
more after an error.

"""
_ERRORS = "With `-o json` an error is one line on stderr:\n\n"

_EVENTS = """
## Events

Each line also has `schema` (version of the event format), `event` (type of the event) and `at`
(when the event was printed).
"""
_TYPE_TEXTS: Mapping[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
    inspect.DictType: "object",
    inspect.StructType: "object",
}


def output_reference(header: str, table: Table) -> str:
    codes = [("0", "-", "Success, also if there was nothing to do.")]
    codes += [(str(e.exit_code), e.reason, e.meaning) for e in ERRORS]
    return "".join(
        (
            header,
            "# Output of the command line\n\n",
            _INTRODUCTION,
            "## Exit codes\n\n",
            _DIFF_CODES,
            table(("code", "reason", "meaning"), codes),
            "\n## Errors\n\n",
            _ERRORS,
            _field_table(ErrorDocument, table),
            '\n## Lists\n\n`{"items": [...]}`, with these fields in each entry.\n',
            *(_list_section(name, table) for name in LISTS),
            "\n## Documents\n",
            *(_section(name, DOCUMENTS[name], table) for name in DOCUMENTS),
            "\n### Deleted instance\n\n",
            "`instances describe` and `explain` print it for an instance that is deleted.\n\n",
            _field_table(DeletedInstance, table),
            _EVENTS,
            *(_event_section(event, name, table) for event, name in EVENTS.items()),
        )
    )


def _section(name: str, document: type[OutputDocument], table: Table) -> str:
    return f"\n### {name}\n\n" + _field_table(document, table)


def _list_section(name: str, table: Table) -> str:
    section = _section(name, LISTS[name], table)
    if name not in LIST_SUMMARIES:
        return section
    return f"{section}\nBeside `items`:\n\n" + _field_table(LIST_SUMMARIES[name], table)


def _event_section(event: type[OutputDocument], name: str, table: Table) -> str:
    heading = f"\n### {name}\n\n{event.__doc__}\n".rstrip()
    fields = _field_table(event, table)
    return f"{heading}\n\n{fields}" if event.__struct_fields__ else f"{heading}\n"


def _field_table(document: type[OutputDocument], table: Table) -> str:
    rows = [(f"`{field}`", *described) for field, described in describe_fields(document).items()]
    return table(("field", "type", "meaning"), rows)


def describe_fields(document: type[OutputDocument]) -> dict[str, tuple[str, str]]:
    """Return type and meaning of each field by its path, in the order of the output."""
    info = inspect.type_info(document)
    assert isinstance(info, inspect.StructType)
    return dict(_walk_fields(info, ""))


def _walk_fields(struct: inspect.StructType, prefix: str) -> Iterator[tuple[str, tuple[str, str]]]:
    for field in struct.fields:
        optional = "" if field.required else ", optional"
        path = prefix + field.encode_name
        yield path, (_type_text(field.type) + optional, _meaning(field.type))
        inner, suffix = _nested_type(field.type)
        if isinstance(inner, inspect.StructType):
            yield from _walk_fields(inner, f"{path}{suffix}.")


def _nested_type(type_: inspect.Type) -> tuple[inspect.Type, str]:
    """Return the type of the objects in a field, and what stands for an item in a path."""
    match type_:
        case inspect.Metadata():
            return _nested_type(type_.type)
        case inspect.UnionType():
            return next(
                (_nested_type(t) for t in type_.types if isinstance(t, inspect.StructType)),
                (type_, ""),
            )
        case inspect.ListType():
            return type_.item_type, "[]"
    return type_, ""


def _meaning(type_: inspect.Type) -> str:
    schema = type_.extra_json_schema if isinstance(type_, inspect.Metadata) else None
    return str((schema or {}).get("description", ""))


def _type_text(type_: inspect.Type) -> str:
    match type_:
        case inspect.Metadata():
            is_time = (type_.extra_json_schema or {}).get("format") == "date-time"
            return "time" if is_time else _type_text(type_.type)
        case inspect.UnionType():
            return " or ".join(_type_text(member) for member in type_.types)
        case inspect.ListType():
            return f"list of {_type_text(type_.item_type)}s"
    return _TYPE_TEXTS[type(type_)]
