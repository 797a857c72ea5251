"""Hostile and damaged backup files are rejected without effect."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from datetime import UTC, datetime
from pathlib import Path

import pytest

from datum_compute.app.backup import archive as archives
from datum_compute.app.backup.archive import (
    Archive,
    ArchiveError,
    Part,
    read_archive,
    write_archive,
)
from datum_compute.app.backup.backup import check_files
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.state_directory import BACKUP_FILES
from tests.app.backup.test_backup import archive_of

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def write_backup_with(path: Path, member: tarfile.TarInfo, content: bytes = b"") -> Path:
    """Write a backup with an additional member."""
    write_archive(path, archive_of("web"))
    with tarfile.open(path, "r:gz") as tar:
        found = [(m, tar.extractfile(m).read()) for m in tar]  # type: ignore[union-attr]
    with tarfile.open(path, "w:gz") as tar:
        for known, held in found:
            tar.addfile(known, io.BytesIO(held))
        tar.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.size, made.linkname = kind, size, "/etc/passwd"
    return made


@pytest.mark.parametrize(
    "strange",
    [
        member("ca.key", tarfile.SYMTYPE),
        member("ca.key", tarfile.LNKTYPE),
        member("cells", tarfile.DIRTYPE),
        member("ca.key", tarfile.FIFOTYPE),
        member("ca.key", tarfile.CHRTYPE),
        member("../../outside"),
        member("/etc/cron.d/outside"),
    ],
    ids=lambda m: f"{m.name} {m.type!r}",
)
def test_links_devices_and_paths_outside_are_rejected(
    tmp_path: Path, strange: tarfile.TarInfo
) -> None:
    with pytest.raises(ArchiveError, match="is damaged"):
        read_archive(write_backup_with(tmp_path / "a.backup", strange))
    assert [path.name for path in tmp_path.iterdir()] == ["a.backup"]


def peak_bytes(path: Path) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError, match=r"exceeds the limit|too large|unexpected member"):
            read_archive(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_compressed_bomb_is_rejected_with_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has 50 kB and contains 50 MB of zeros; the limit in this test is 1 MB."""
    monkeypatch.setattr(archives, "UNPACKED_FREE_BYTES", 1_000_000)
    monkeypatch.setattr(archives, "UNPACKED_RATIO_MAX", 2)
    zeros = b"\0" * 50_000_000
    bomb = write_backup_with(
        tmp_path / "a.backup", member("store.jsonl.more", size=len(zeros)), zeros
    )
    assert peak_bytes(bomb) < 10_000_000
    bomb.write_bytes(gzip.compress(zeros))
    with pytest.raises(ArchiveError):
        read_archive(bomb)
    inner = write_backup_with(
        tmp_path / "b.backup", member("cells/x/store.jsonl", size=len(zeros)), zeros
    )
    assert peak_bytes(inner) < 10_000_000


def test_no_memory_is_allocated_for_the_size_in_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    huge = member("ca.key", size=2**40)
    path.write_bytes(gzip.compress(huge.tobuf()))
    assert peak_bytes(path) < 10_000_000
    sparse = member("store.jsonl", tarfile.GNUTYPE_SPARSE)
    buffer = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    buffer[483:495] = b"77777777777\0"  # the size with holes: 8 GiB
    buffer[148:156] = b"        "
    buffer[148:156] = f"{sum(buffer):06o}\0 ".encode()
    path.write_bytes(gzip.compress(bytes(buffer) + b"\0" * 1024))
    assert peak_bytes(path) < 10_000_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("state")
    ensure_certificate(folder, NOW)
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    return {
        **{name: content for name, content in found.items() if name in BACKUP_FILES},
        "tokens.json": b'{"manager":"secret"}',
        "port.json": b'{"port":7}',
        "cells.json": b'{"cells":["dfw"]}',
        "driver.json": b'{"driver":"simulated","engine":""}',
    }


def archive_with(files: dict[str, bytes], cell: str = "") -> Archive:
    return Archive("2026-11-15T00:00:00Z", (Part(cell, {}, files),))


def test_valid_files_are_accepted(files: dict[str, bytes]) -> None:
    assert {"ca.crt", "ca.key", "server.crt", "server.key"} <= set(files)
    check_files(archive_with(files))


@pytest.mark.parametrize("name", BACKUP_FILES)
@pytest.mark.parametrize("content", [b"", b"{}", b"secret-of-mine", b'{"port":"x","cells":[1]}'])
def test_the_error_of_a_damaged_file_names_it_without_its_content(
    files: dict[str, bytes], name: str, content: bytes
) -> None:
    with pytest.raises(ArchiveError) as refused:
        check_files(archive_with({**files, name: content}, "lhr"))
    assert str(refused.value).startswith(f"{name} of cell lhr is damaged")
    assert "secret" not in str(refused.value)


def test_a_key_of_another_certificate_is_rejected(files: dict[str, bytes]) -> None:
    with pytest.raises(ArchiveError, match=r"server\.crt is not a certificate of server\.key"):
        check_files(archive_with({**files, "server.key": files["ca.key"]}))
