"""Write a backup file and verify it with a trial restore.

The backup replaces an older file only after the trial restore has succeeded: every object decodes
as its kind, and a database that is built from the file reads back with the same content.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import DecodeError, decode, decode_as
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import cell_plane
from datum_compute.app.backup.archive import Archive, ArchiveError, read_archive, write_archive
from datum_compute.app.cell_membership import Membership
from datum_compute.store.journal import LoadedPlane, ObjectKey
from datum_compute.store.sqlite import SqliteJournal, write_database

# --- Verification of the keys, certificates and settings in a backup
# A server with a damaged key or certificate fails at startup, or creates a new one that no client
# trusts. The check therefore runs before a restore replaces the old state. Its errors name the file
# and never quote it.


# Each certificate and its private key.
_PAIRS = (("ca.crt", "ca.key"), ("server.crt", "server.key"), ("cell.crt", "cell.key"))


def check_files(archive: Archive) -> None:
    """Raise ArchiveError for the first file that is not usable."""
    for part in archive.parts:
        whose = f" of cell {part.name}" if part.name else ""
        for name, content in sorted(part.files.items()):
            if not _is_readable(name, content):
                expected = _FILE_TYPES[name][0]
                raise ArchiveError(
                    f"{name}{whose} is damaged: it does not contain a valid {expected}"
                )
        for certificate, key in _PAIRS:
            if not _match(part.files, certificate, key):
                raise ArchiveError(f"{certificate}{whose} is not a certificate of {key}")


def _is_readable(name: str, content: bytes) -> bool:
    _, read = _FILE_TYPES[name]
    try:
        read(content)
    except (DecodeError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return False
    return True


def _match(files: Mapping[str, bytes], certificate: str, key: str) -> bool:
    if certificate not in files or key not in files:
        return True
    own = _key(files[key]).public_key()
    return x509.load_pem_x509_certificate(files[certificate]).public_key() == own


def _key(content: bytes) -> PrivateKeyTypes:
    return load_pem_private_key(content, None)


def _port(content: bytes) -> None:
    if not 0 < decode_as(content, dict[str, int])["port"] < 65536:
        raise ValueError


def _cells(content: bytes) -> None:
    for name in decode_as(content, dict[str, list[str]])["cells"]:
        cell_plane(name)


def _texts(content: bytes) -> None:
    if not decode_as(content, dict[str, str]):
        raise ValueError


def _membership(content: bytes) -> None:
    decode_as(content, Membership)


# The type of each file in ``state_directory.BACKUP_FILES``, and the function that parses it.
_FILE_TYPES: Mapping[str, tuple[str, Callable[[bytes], object]]] = {
    "tokens.json": ("tokens", _texts),
    "ca.crt": ("certificate", x509.load_pem_x509_certificates),
    "ca.key": ("private key", _key),
    "server.crt": ("certificate", x509.load_pem_x509_certificates),
    "server.key": ("private key", _key),
    "service-accounts.key": ("private key", _key),
    "port.json": ("port", _port),
    "cells.json": ("names of cells", _cells),
    "driver.json": ("driver", _texts),
    "membership.json": ("membership", _membership),
    "cell.key": ("private key", _key),
    "cell.crt": ("certificate", x509.load_pem_x509_certificates),
    "hub-ca.crt": ("certificate", x509.load_pem_x509_certificates),
}


# --- backup


_MODELS: Mapping[str, KindInfo[Any]] = {k.storage: k for k in KINDS if not k.stored_as}


async def make_backup(path: Path, archive: Archive) -> None:
    """Write the backup and verify it. An older file stays until the new one is verified.

    Raise OSError or JournalError if the disk is full, and ArchiveError if verification fails.
    """
    draft = path.with_name(f".{path.name}.unproven")
    try:
        write_archive(draft, archive)
        written = read_archive(draft)
        if written != archive:
            raise ArchiveError(f"{path} differs from the data that was backed up; try again")
        check_objects(written)
        check_files(written)
        await _restore_on_trial(path.parent, written)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def check_objects(archive: Archive) -> int:
    """Return the number of objects. Raise ArchiveError for the first that is not valid."""
    checked = 0
    for part in archive.parts:
        for plane, held in sorted(part.planes.items()):
            for key, (version, body) in held.objects.items():
                for problem in _problems(key, version, body):
                    raise ArchiveError(
                        f"{key.resource} {key.namespace}/{key.name} of plane {plane!r} {problem}"
                    )
                checked += 1
    return checked


def _problems(key: ObjectKey, version: int, body: bytes) -> Iterator[str]:
    try:
        found = decode(body)
        kind = _MODELS.get(key.resource)
        if kind is not None:
            decode_as(body, kind.model)
        metadata = found["metadata"]
        identity = (metadata.get("namespace", ""), metadata["name"], metadata["resourceVersion"])
    except (DecodeError, KeyError, TypeError, AttributeError) as error:
        yield f"cannot be decoded: {error}"
        return
    if identity != (key.namespace, key.name, str(version)):
        yield "has a name or version that differs from its key"


async def _restore_on_trial(parent: Path, archive: Archive) -> None:
    """Build every database in a temporary directory and compare its content with the backup."""
    with tempfile.TemporaryDirectory(dir=parent, prefix=".backup-check-") as folder:
        for number, part in enumerate(archive.parts):
            path = Path(folder) / f"{number}.db"
            write_database(path, part.planes)
            if await read_planes(path) != part.planes:
                raise ArchiveError("the database built from the backup differs from the backup")


async def read_planes(path: Path) -> dict[str, LoadedPlane]:
    """Return the content of a database that no process has open. Raise JournalError."""
    journal = SqliteJournal(path)
    try:
        return await journal.load()
    finally:
        await journal.close()
