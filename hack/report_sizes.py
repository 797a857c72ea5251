"""Report functions over 60 lines and files over 500. The limits are goals; nothing fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
FOLDERS = ("src", "testkit", "tests", "bench", "hack")


def oversized(path: Path) -> Iterator[str]:
    source = path.read_text()
    lines = source.count("\n")
    if lines > FILE_LINES_MAX:
        yield f"{path}: {lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = _length(node)
            if length > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines"


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of the function without its docstring."""
    length = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node) is not None and first.end_lineno is not None:
        length -= first.end_lineno - first.lineno + 1
    return length


def main() -> None:
    paths = [path for folder in FOLDERS for path in sorted(Path(folder).rglob("*.py"))]
    found = [line for path in paths for line in oversized(path)]
    print("\n".join(found) if found else f"sizes: {len(paths)} files, none too large")  # noqa: T201


if __name__ == "__main__":
    main()
