"""Read and merge kubeconfig files, and write renewed tokens to them.

Rules:
- Files merge as in kubectl: the first file with an entry or a current-context wins, and missing
  files are ignored.
- A path is relative to the file that contains it.
- Errors name the file and the problem, and never quote the file.
- The caller decides which files to read. This module does not read the environment.
"""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.yaml import YamlError, YamlLimits, YamlTooLarge, parse_yaml

# A kubeconfig may contain all clusters of a company.
FILE_BYTES_MAX = 16 * 1024 * 1024
_LIMITS = YamlLimits(chars_max=FILE_BYTES_MAX, values_max=500_000, allow_aliases=True)


class KubeconfigError(ValueError):
    """The kubeconfig is not usable. The message names the file, the context and the problem."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A named entry of one of the lists, and the file that contains it."""

    file: Path
    body: JsonObject
    name: str = ""

    def path_of(self, path: str) -> Path:
        """Resolve a path of the entry relative to its file."""
        return self.file.parent / path


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The merged files."""

    files: tuple[Path, ...]
    current_context: str
    clusters: dict[str, Entry]
    users: dict[str, Entry]
    contexts: dict[str, Entry]

    @property
    def file_list(self) -> str:
        return ", ".join(str(file) for file in self.files)


def load_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Merge the files that exist. Raise KubeconfigError if none does."""
    files = tuple(path for path in paths if path.is_file())
    if not files:
        looked = ", ".join(str(path) for path in paths) or "no file at all"
        raise KubeconfigError(f"no kubeconfig found (looked for {looked})")
    config = Kubeconfig(files, "", {}, {}, {})
    current = ""
    for file in files:
        document = _document(file)
        current = current or str(document.get("current-context") or "")
        for key, name in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            _merge(getattr(config, key), document, key, name, file)
    return Kubeconfig(files, current, config.clusters, config.users, config.contexts)


def change_user(file: Path, user: str, change: Callable[[JsonObject], None]) -> None:
    """Change a user of a file atomically. The file keeps the permissions of its owner."""
    file = file.resolve()
    document = _document(file)
    for item in document.get("users") or ():
        if item.get("name") == user:
            change(item["user"])
    # Only the owner can read the temporary file (0600).
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(handle, "w") as stream:
            yaml.safe_dump(document, stream, sort_keys=False)
            os.fchmod(stream.fileno(), file.stat().st_mode & 0o700)
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def file_or_inline(entry: Entry, key: str, context: str) -> bytes | None:
    """Return the content of ``<key>-data``, or of the file that ``<key>`` names."""
    data = entry.body.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise KubeconfigError(
                f"{entry.file}: {key}-data of context {context!r} is not base64"
            ) from None
    path = entry.body.get(key)
    return read_named_file(entry, str(path), key, context) if path else None


def read_named_file(entry: Entry, path: str, key: str, context: str) -> bytes:
    file = entry.path_of(path)
    try:
        return file.read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f"{entry.file}: {key} of context {context!r}, {file}, cannot be read: {error.strerror}"
        ) from error


def _document(file: Path) -> JsonObject:
    try:
        with file.open("rb") as stream:
            content = stream.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise KubeconfigError(f"{file} is larger than {FILE_BYTES_MAX} bytes")
        documents = parse_yaml(content.decode("utf-8-sig"), _LIMITS)
    except OSError as error:
        raise KubeconfigError(f"{file} cannot be read: {error.strerror}") from error
    except YamlTooLarge as error:
        raise KubeconfigError(f"{file} is too large: {error.message}") from None
    except YamlError as error:
        # The message may quote the value at that place, which may be a token.
        where = f" (line {error.line})" if error.line else ""
        raise KubeconfigError(f"{file} is not YAML{where}") from None
    except UnicodeDecodeError:
        raise KubeconfigError(f"{file} is not text in UTF-8") from None
    document = documents[0].value if documents else None
    if not isinstance(document, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig: its top level is not a mapping")
    return document


def _merge(
    entries: dict[str, Entry], document: JsonObject, key: str, name: str, file: Path
) -> None:
    listed = document.get(key) or ()
    if not isinstance(listed, list | tuple):
        raise KubeconfigError(f"{file}: {key} is not a list")
    for item in listed:
        body = item.get(name) if isinstance(item, dict) else None
        if not isinstance(body, dict) or not item.get("name"):
            raise KubeconfigError(f"{file}: an entry of {key} lacks its name or its {name}")
        entry = Entry(file, body, str(item["name"]))
        entries.setdefault(entry.name, entry)
