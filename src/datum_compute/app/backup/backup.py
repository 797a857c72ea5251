"""Making a backup of what was read from the stores, and trying it out before anybody relies on it.

A backup counts only when a copy of it was restored: every object is decoded as its kind, and a
database is built from the file and read again with the same content.
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

# --- Whether the files beside the store of a backup can be used, before they take the place of
# others A start with a damaged key or certificate would fail, or make a new one that nobody trusts;
# so it
# is named while the old state is still there. What is wrong is told, what is in the file never.


# A certificate and the key that it is of.
_PAIRS = (("ca.crt", "ca.key"), ("server.crt", "server.key"), ("cell.crt", "cell.key"))


def check_files(archive: Archive) -> None:
    """Raises ArchiveError for the first that cannot be used."""
    for part in archive.parts:
        whose = f" of cell {part.name}" if part.name else ""
        for name, content in sorted(part.files.items()):
            if not _can_be_used(name, content):
                raise ArchiveError(f"{name}{whose} is damaged: it holds no {_KINDS[name][0]}")
        for certificate, key in _PAIRS:
            if not _belong_together(part.files, certificate, key):
                raise ArchiveError(f"{certificate}{whose} is not a certificate of {key}")


def _can_be_used(name: str, content: bytes) -> bool:
    _, read = _KINDS[name]
    try:
        read(content)
    except (DecodeError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return False
    return True


def _belong_together(files: Mapping[str, bytes], certificate: str, key: str) -> bool:
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


# What each file of ``statefiles.KEPT`` holds, and how that is read.
_KINDS: Mapping[str, tuple[str, Callable[[bytes], object]]] = {
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
    """The file is there when the backup was proven good; an older one stays until then.

    Raises OSError or JournalError when there is no room, ArchiveError when it is not good.
    """
    draft = path.with_name(f".{path.name}.unproven")
    try:
        write_archive(draft, archive)
        written = read_archive(draft)
        if written != archive:
            raise ArchiveError(f"{path} does not hold what was backed up; try again")
        check_objects(written)
        check_files(written)
        await _try_out(path.parent, written)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def check_objects(archive: Archive) -> int:
    """How many objects there are; raises ArchiveError for one that is not what it should be."""
    checked = 0
    for part in archive.parts:
        for plane, held in sorted(part.planes.items()):
            for key, (version, body) in held.objects.items():
                for wrong in _problems(key, version, body):
                    raise ArchiveError(
                        f"{key.resource} {key.namespace}/{key.name} of plane {plane!r} {wrong}"
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
        told = (metadata.get("namespace", ""), metadata["name"], metadata["resourceVersion"])
    except (DecodeError, KeyError, TypeError, AttributeError) as error:
        yield f"cannot be decoded: {error}"
        return
    if told != (key.namespace, key.name, str(version)):
        yield "is filed under a name or version that is not its own"


async def _try_out(beside: Path, archive: Archive) -> None:
    """Build every database from the file, in a folder that goes again, and read it back."""
    with tempfile.TemporaryDirectory(dir=beside, prefix=".backup-check-") as folder:
        for number, part in enumerate(archive.parts):
            path = Path(folder) / f"{number}.db"
            write_database(path, part.planes)
            if await read_planes(path) != part.planes:
                raise ArchiveError("the database built from the backup differs from it")


async def read_planes(path: Path) -> dict[str, LoadedPlane]:
    """What a database holds that no process has open. Raises JournalError."""
    journal = SqliteJournal(path)
    try:
        return await journal.load()
    finally:
        await journal.close()
