"""Reads files and standard input that a user names, up to a limit on their size.

The limit applies before the content is in memory. It also applies to pipes and devices.
"""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from datum_compute.cli.errors import UsageError

# The server accepts no larger request.
FILE_BYTES_MAX = 3 * 1024 * 1024


def read_text_file(file: Path, shown: str, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Return the UTF-8 text of a file. Raises UsageError that names the file as ``shown``."""
    try:
        return read_file(file, shown, bytes_max).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not text in UTF-8.") from None


def read_file(file: Path, shown: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    try:
        with file.open("rb") as stream:
            content = stream.read(bytes_max + 1)
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.") from error
    if len(content) > bytes_max:
        raise _too_large(shown, bytes_max)
    return content


def read_stdin(stdin: TextIO, bytes_max: int = FILE_BYTES_MAX) -> str:
    try:
        text = stdin.read(bytes_max + 1)
    except UnicodeDecodeError:
        raise UsageError("stdin is not text in UTF-8.") from None
    if len(text) > bytes_max:
        raise _too_large("stdin", bytes_max)
    return text


def _too_large(shown: str, bytes_max: int) -> UsageError:
    return UsageError(
        f"{shown} is larger than {bytes_max} bytes.",
        "Split it into several files, each with some of the objects.",
    )
