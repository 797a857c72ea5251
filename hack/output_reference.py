"""docs/reference/cli-output.md: exit codes, errors, documents and events of the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from datum_compute.cli.errors import ERRORS
from datum_compute.cli.render.documents import DOCUMENTS, EVENT_MEANINGS, EVENTS, FIELDS, LISTS

Table = Callable[[Sequence[str], Sequence[Sequence[str]]], str]

_INTRODUCTION = """\
Data goes to stdout, everything else (plans, progress, prompts, errors) to stderr. Reads take
`-o table|wide|json|yaml|name|csv|jsonpath=PATH`; filters hold for every format. Commands that
change something or wait take `-o json` and print one event per line while they go on. Times are
RFC 3339 in UTC. Fields are only ever added.

"""
_ERRORS = """\
With `-o json` a failure is one line on stderr:
`{"error": {"code", "reason", "message", "field", "hint", "retryable", "requestId"}}`. `code` is the
exit code, `field` the path of what is wrong, `retryable` says whether the same command may succeed
later as it stands, and `requestId` finds the request in the audit trail of the platform.

"""


def output_reference(header: str, table: Table) -> str:
    codes = [("0", "-", "Done; also when there was nothing to do.")]
    codes += [(str(e.exit_code), e.reason, e.meaning) for e in ERRORS]
    used = [(name, *FIELDS[name]) for name in sorted(FIELDS)]
    return "".join(
        (
            header,
            "# Output of the command line\n\n",
            _INTRODUCTION,
            "## Exit codes\n\n",
            "`diff` and `rollout diff` alone: 0 no difference, 1 some, 2 and more an error.\n\n",
            table(("code", "reason", "meaning"), codes),
            "\n## Errors\n\n",
            _ERRORS,
            '## Lists\n\n`{"items": [...]}`, with these fields in each entry.\n\n',
            table(("command", "fields"), _rows(LISTS)),
            "\n## Documents\n\n",
            table(("command", "fields"), _rows(DOCUMENTS)),
            "\n## Events\n\nEach line also has `schema`, `event` and `at`.\n\n",
            table(
                ("event", "meaning", "fields"),
                [(f"`{n}`", EVENT_MEANINGS[n], _listed(f)) for n, f in EVENTS.items()],
            ),
            "\n## Fields\n\n",
            table(("field", "type", "meaning"), [(f"`{n}`", t, m) for n, t, m in used]),
        )
    )


def _rows(documents: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(f"`{name}`", _listed(fields)) for name, fields in documents.items()]


def _listed(fields: Sequence[str]) -> str:
    return ", ".join(f"`{field}`" for field in fields) or "-"
