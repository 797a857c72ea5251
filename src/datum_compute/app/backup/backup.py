"""Making a backup of what was read from the stores, and trying it out before anybody relies on it.

A backup counts only when a copy of it was restored: every object is decoded as its kind, and a
database is built from the file and read again with the same content.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from datum_compute.api.kinds import KINDS
from datum_compute.api.meta.codec import DecodeError, decode, decode_as
from datum_compute.api.meta.objects import KindInfo
from datum_compute.app.backup.archive import Archive, ArchiveError, read_archive, write_archive
from datum_compute.app.filecheck import check_files
from datum_compute.store.journal import LoadedPlane, ObjectKey
from datum_compute.store.sqlite import SqliteJournal, write_database

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
