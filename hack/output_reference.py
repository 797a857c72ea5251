"""Generates docs/reference/cli-output.md: exit codes, errors, JSON documents and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import inspect

from datum_compute.cli.errors import ERRORS
from datum_compute.cli.render.documents import (
    DOCUMENTS,
    EVENT_MEANINGS,
    EVENTS,
    FIELDS,
    LISTS,
    OutputDocument,
)

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
_ERRORS = """\
With `-o json` an error is one line on stderr:
`{"error": {"code", "reason", "message", "field", "hint", "retryable", "requestId"}}`. `code` is the
exit code and `field` the path of the invalid field. If `retryable` is true, the same command may
succeed later. `requestId` identifies the request in the audit log of the platform.

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
    used = [(name, *FIELDS[name]) for name in sorted(FIELDS)]
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
            '## Lists\n\n`{"items": [...]}`, with these fields in each entry.\n',
            *(_section(name, LISTS[name], table) for name in LISTS),
            "\n## Documents\n\n",
            table(("command", "fields"), _rows(DOCUMENTS)),
            "\n## Events\n\nEach line also has `schema`, `event` and `at`.\n\n",
            table(
                ("event", "meaning", "fields"),
                [(f"`{n}`", EVENT_MEANINGS[n], _listed(f)) for n, f in EVENTS.items()],
            ),
            "\n## Fields of documents and events\n\n",
            table(("field", "type", "meaning"), [(f"`{n}`", t, m) for n, t, m in used]),
        )
    )


def _rows(documents: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(f"`{name}`", _listed(fields)) for name, fields in documents.items()]


def _listed(fields: Sequence[str]) -> str:
    return ", ".join(f"`{field}`" for field in fields) or "-"


def _section(name: str, document: type[OutputDocument], table: Table) -> str:
    rows = [(f"`{field}`", *described) for field, described in describe_fields(document).items()]
    return f"\n### {name}\n\n" + table(("field", "type", "meaning"), rows)


def describe_fields(document: type[OutputDocument]) -> dict[str, tuple[str, str]]:
    """Return type and meaning of each field, in the order of the output."""
    info = inspect.type_info(document)
    assert isinstance(info, inspect.StructType)
    return {f.encode_name: (_type_text(f.type), _meaning(f.type)) for f in info.fields}


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
