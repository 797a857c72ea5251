"""The documents of a YAML or JSON text, each with the line and column of every field.

The limits reject a file that the server would not accept before it costs minutes and gigabytes.
Unlike request bodies, files may use anchors, aliases and merge keys. Each alias counts as much as
the value it repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.yaml import Mark, YamlError, YamlLimits, YamlSyntaxError, parse_yaml
from datum_compute.cli.errors import UsageError
from datum_compute.cli.files import FILE_BYTES_MAX

Place = tuple[int, int]

_LIMITS = YamlLimits(
    chars_max=FILE_BYTES_MAX, values_max=100_000, documents_max=1000, allow_aliases=True
)


@dataclass(frozen=True, slots=True)
class Document:
    value: JsonObject
    shown: str
    mark: Mark

    def place(self, path: str) -> Place:
        """Return where a field is, such as ``spec.placements[0].name``, or its nearest parent."""
        mark, rest = self.mark, path
        while rest:
            inside, rest = _step(mark, rest)
            if inside is None:
                break
            mark = inside
        return mark.line, mark.column

    def at(self, path: str) -> str:
        line, column = self.place(path)
        return f"{self.shown}:{line}:{column}"


def read_documents(text: str, shown: str) -> list[Document]:
    try:
        documents = parse_yaml(text, _LIMITS)
    except YamlError as error:
        where = f"{shown}:{error.line}:{error.column}" if error.line else shown
        is_syntax = isinstance(error, YamlSyntaxError)
        why = " is neither YAML nor JSON: " if is_syntax else ": "
        raise UsageError(f"{where}{why}{error.message}.") from error
    found = []
    for document in documents:
        if document.value is None:
            continue
        if not isinstance(document.value, dict):
            mark = document.mark
            raise UsageError(f"{shown}:{mark.line}:{mark.column} does not hold an object.")
        found.append(Document(document.value, shown, document.mark))
    return found


def _step(mark: Mark, path: str) -> tuple[Mark | None, str]:
    """Return the mark of the first field of the path, and the rest of the path.

    Keys may contain dots, as label keys do, so the longest existing key is used.
    """
    match mark.inside:
        case list() if path.startswith("["):
            index, _, rest = path[1:].partition("]")
            if index.isdecimal() and int(index) < len(mark.inside):
                return mark.inside[int(index)], rest.removeprefix(".")
        case dict():
            end = len(path)
            while end > 0:
                if found := mark.inside.get(path[:end]):
                    return found, path[end:].removeprefix(".")
                end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
    return None, ""
