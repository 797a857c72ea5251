"""The backup file: a compressed tar with a dump of each store and the files of its state directory.

``manifest.json`` is the first member. It lists every other member with its size and checksum. A
part contains the state of one process: the server, whose part has an empty name, or a cell that
runs in a process of its own.

Rules:
- Only the owner can read the file, because it contains keys and tokens.
- The file appears under its name when it is complete.
- A file that is damaged, truncated or written by a newer release is rejected with the reason.
- Checksums detect accidental damage. They do not detect tampering.
- Memory use is proportional to the size of the file. Nothing is unpacked to disk.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

import msgspec

from datum_compute import __version__
from datum_compute.app.state_directory import StateError, is_backup_file
from datum_compute.store.dump import DumpError, decode_dump, encode_dump
from datum_compute.store.journal import LoadedPlane

FORMAT = 1
_MANIFEST, _STORE = "manifest.json", "store.jsonl"
# JSON compresses 10 to 30 times. A larger ratio indicates a decompression bomb.
UNPACKED_RATIO_MAX = 200
UNPACKED_FREE_BYTES = 64 * 1024 * 1024
UNPACKED_BYTES_MAX = 4 * 1024**3
FILE_BYTES_MAX = 1024 * 1024  # of keys, certificates and tokens
_CHUNK_BYTES = 64 * 1024
_MEMBER = re.compile(r"(?:cells/(?P<cell>[a-z0-9][-a-z0-9]{0,62})/)?(?P<name>[^/]+)")


class ArchiveError(StateError):
    """The file is not a usable backup. The message contains the reason."""


@dataclass(frozen=True, slots=True, repr=False)
class Part:
    """The state of one process. The repr omits it, because the files contain secrets."""

    name: str
    planes: Mapping[str, LoadedPlane]
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Archive:
    created_at: str
    parts: tuple[Part, ...]
    version: str = __version__


class _Member(msgspec.Struct, frozen=True):
    bytes: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True, rename="camel"):
    format: int
    version: str
    created_at: str
    members: dict[str, _Member]


def write_archive(path: Path, archive: Archive) -> None:
    """Replace the file and sync it to disk. Raise OSError on failure."""
    contents = dict(_contents(archive))
    members = {name: _Member(len(c), _sha256(c)) for name, c in contents.items()}
    manifest = _Manifest(FORMAT, archive.version, archive.created_at, members)
    encoded_manifest = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    draft = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            _pack(file, {_MANIFEST: encoded_manifest, **contents})
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def _contents(archive: Archive) -> Iterator[tuple[str, bytes]]:
    for part in archive.parts:
        where = f"cells/{part.name}/" if part.name else ""
        yield where + _STORE, encode_dump(part.planes)
        yield from ((where + name, content) for name, content in sorted(part.files.items()))


def _pack(file: io.BufferedWriter, contents: Mapping[str, bytes]) -> None:
    # Omit the time, so that the same state produces the same bytes.
    with (
        gzip.GzipFile(fileobj=file, mode="wb", compresslevel=6, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o600
            tar.addfile(member, io.BytesIO(content))


def read_archive(path: Path) -> Archive:
    """Return the contents of the file after verifying every checksum.

    Raise ArchiveError if the file is not usable, and OSError if it cannot be read.
    """
    contents = _unpack(path)
    manifest = _manifest(path, contents.pop(_MANIFEST, b""))
    if set(contents) != set(manifest.members):
        raise ArchiveError(f"{path} is damaged: the manifest does not list its files")
    for name, member in manifest.members.items():
        if (len(contents[name]), _sha256(contents[name])) != (member.bytes, member.sha256):
            raise ArchiveError(f"{path} is damaged: the checksum of {name} does not match")
    return Archive(manifest.created_at, tuple(_parts(path, contents)), manifest.version)


def _unpack(path: Path) -> dict[str, bytes]:
    if path.exists() and not path.is_file():
        raise ArchiveError(f"{path} is not a backup: it is not a regular file")
    try:
        with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as whole:
            stream = _Bounded(path, whole)
            # In stream mode, tarfile calls only read().
            with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r|") as tar:
                found = _members(path, tar)
            while stream.read(_CHUNK_BYTES):
                pass  # gzip verifies its checksum at the end of the stream
            return found
    except (EOFError, zlib.error) as error:
        raise ArchiveError(f"{path} is damaged or cut short: {error}") from error
    except (gzip.BadGzipFile, tarfile.TarError) as error:
        raise ArchiveError(f"{path} is not a backup, or is damaged: {error}") from error


class _Bounded:
    """A reader of a compressed file that limits the unpacked size."""

    def __init__(self, path: Path, unpacked: gzip.GzipFile) -> None:
        self._path, self._unpacked = path, unpacked
        allowed = max(UNPACKED_FREE_BYTES, UNPACKED_RATIO_MAX * path.stat().st_size)
        self._left = min(allowed, UNPACKED_BYTES_MAX)

    def read(self, size: int) -> bytes:
        content = self._unpacked.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise ArchiveError(f"{self._path} is damaged: the unpacked size exceeds the limit")
        return content


def _members(path: Path, tar: tarfile.TarFile) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for member in tar:
        # The size of a sparse member is not limited by the size of the archive.
        file = tar.extractfile(member) if member.isreg() and not member.issparse() else None
        if file is None or member.name in found:
            raise ArchiveError(f"{path} is damaged: unexpected member {member.name!r}")
        is_store = member.name.rpartition("/")[2] == _STORE
        if member.size > (UNPACKED_BYTES_MAX if is_store else FILE_BYTES_MAX):
            raise ArchiveError(f"{path} is damaged: member {member.name!r} is too large")
        found[member.name] = file.read()
    return found


def _manifest(path: Path, content: bytes) -> _Manifest:
    try:
        found = msgspec.json.decode(content)
        version = found["format"]
        if not isinstance(version, int) or version < 1:
            raise ArchiveError(f"{path} is not a backup of this platform")
        if version > FORMAT:
            raise ArchiveError(
                f"{path} was written by a newer release (format {version}, this release "
                f"supports {FORMAT}); upgrade datum-compute to restore it"
            )
        return msgspec.convert(found, _Manifest)
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, TypeError) as error:
        raise ArchiveError(f"{path} is not a backup of this platform") from error


def _parts(path: Path, contents: Mapping[str, bytes]) -> Iterator[Part]:
    by_part: dict[str, dict[str, bytes]] = {}
    for name, content in contents.items():
        found = _MEMBER.fullmatch(name)
        if found is None or not (found["name"] == _STORE or is_backup_file(found["name"])):
            raise ArchiveError(f"{path} is damaged: unexpected member {name!r}")
        by_part.setdefault(found["cell"] or "", {})[found["name"]] = content
    if "" not in by_part:
        raise ArchiveError(f"{path} is damaged: the part of the server is missing")
    for part, files in sorted(by_part.items()):
        try:
            planes = decode_dump(files.pop(_STORE, b""))
        except DumpError as error:
            whose = f"cell {part}" if part else "the platform"
            raise ArchiveError(f"{path}: the store of {whose} cannot be used: {error}") from error
        yield Part(part, planes, files)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
