"""Backups contain the whole state, and invalid backups are rejected."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from datum_compute.api.meta.codec import encode
from datum_compute.app.backup.archive import (
    Archive,
    ArchiveError,
    Part,
    read_archive,
    write_archive,
)
from datum_compute.app.backup.backup import check_objects, make_backup, read_planes
from datum_compute.store.journal import LoadedPlane, ObjectKey
from datum_compute.store.sqlite import write_database

FILES = {"tokens.json": b'{"manager":"secret"}', "port.json": b'{"port":7}'}


_INSTANCE = {
    "runtime": {
        "resources": {"instanceType": "datumcloud/d1-standard-2"},
        "sandbox": {"containers": [{"name": "main", "image": "x.example/web:1"}]},
    },
    "networkInterfaces": [{"network": {"name": "default"}}],
}


_PLACEMENTS = [{"name": "main", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}]


def workload(name: str, version: int, **more: object) -> tuple[ObjectKey, tuple[int, bytes]]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version)}
    body = encode(
        {
            "apiVersion": "compute.datumapis.com/v1alpha",
            "kind": "Workload",
            "metadata": metadata,
            "spec": {"template": {"spec": _INSTANCE}, "placements": _PLACEMENTS},
            **more,
        }
    )
    return ObjectKey("workloads.compute.datumapis.com", "default", name), (version, body)


def archive_of(*names: str, token: str = "secret") -> Archive:
    objects = dict(workload(name, version) for version, name in enumerate(names, 1))
    planes = {
        "platform": LoadedPlane(2, {}),
        "project/default": LoadedPlane(len(names) + 5, objects),
        "project/gone": LoadedPlane(9, {}, deleted=True),
    }
    files = {**FILES, "tokens.json": encode({"manager": token})}
    return Archive("2026-11-15T00:00:00Z", (Part("", planes, files),))


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def rewrite_archive(path: Path, change: dict[str, bytes | None]) -> None:
    """Rewrite a backup with members changed, added or (None) removed."""
    with tarfile.open(path, "r:gz") as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar}  # type: ignore[union-attr]
    kept = {n: c for n, c in {**found, **change}.items() if c is not None}
    with tarfile.open(path, "w:gz") as tar:
        for name, content in kept.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


async def test_a_backup_equals_the_state_and_is_private(tmp_path: Path) -> None:
    path, archive = tmp_path / "a.backup", archive_of("web", "api")
    await make_backup(path, archive)
    assert read_archive(path) == archive
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert names_in(tmp_path) == ["a.backup"], "the draft is removed"


async def test_backups_of_equal_states_are_equal(tmp_path: Path) -> None:
    for name in ("a", "b"):
        await make_backup(tmp_path / name, archive_of("web"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_truncated_backup_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    write_archive(path, archive_of("web"))
    whole = path.read_bytes()
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ArchiveError, match=r"a\.backup"):
            read_archive(path)


def test_a_backup_with_a_changed_byte_is_rejected_or_equal(tmp_path: Path) -> None:
    path, archive = tmp_path / "a.backup", archive_of("web")
    write_archive(path, archive)
    whole = path.read_bytes()
    header_bytes = 10  # of gzip; it contains no data of the backup
    for place in range(header_bytes, len(whole), 5):
        other = bytearray(whole)
        other[place] ^= 0x10
        path.write_bytes(other)
        with suppress(ArchiveError):
            assert read_archive(path) == archive  # gzip ignores this bit


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"store.jsonl": b"{}\n"}, "checksum of store.jsonl"),
        ({"port.json": b"{}"}, "checksum of port.json"),
        ({"port.json": None}, "manifest does not list"),
        ({"more": b""}, "manifest does not list"),
        ({"manifest.json": None}, "not a backup of this platform"),
        ({"manifest.json": b"[]"}, "not a backup of this platform"),
        ({"manifest.json": b'{"format":2}'}, "newer release.*upgrade"),
    ],
)
def test_the_error_of_a_changed_backup_names_the_member(
    tmp_path: Path, change: dict[str, bytes | None], why: str
) -> None:
    path = tmp_path / "a.backup"
    write_archive(path, archive_of("web"))
    rewrite_archive(path, change)
    with pytest.raises(ArchiveError, match=why):
        read_archive(path)


@pytest.mark.parametrize("name", ["../outside", "cells/../x/ca.key", "/etc/passwd", ".bashrc"])
def test_a_backup_with_other_files_is_rejected(tmp_path: Path, name: str) -> None:
    path, archive = tmp_path / "a.backup", archive_of("web")
    (part,) = archive.parts
    strange = Part("", part.planes, {**part.files, name: b""})
    write_archive(path, Archive(archive.created_at, (strange,)))
    with pytest.raises(ArchiveError, match="unexpected member"):
        read_archive(path)


def test_files_that_are_not_backups_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for endless in (Path("/dev/zero"), tmp_path):
        with pytest.raises(ArchiveError, match="not a regular file"):
            read_archive(endless)
    for content in (b"", b"text", gzip.compress(b"text"), gzip.compress(b"\0" * 4096)):
        path.write_bytes(content)
        with pytest.raises(ArchiveError):
            read_archive(path)


@pytest.mark.parametrize(
    ("key_name", "version", "more"),
    [
        ("other", 1, {}),
        ("web", 2, {}),
        ("web", 1, {"spec": "text"}),
        ("web", 1, {"metadata": []}),
    ],
)
async def test_no_backup_is_written_of_invalid_objects(
    tmp_path: Path, key_name: str, version: int, more: dict[str, object]
) -> None:
    key, (_, body) = workload("web", 1, **more)
    planes = {"project/a": LoadedPlane(5, {key._replace(name=key_name): (version, body)})}
    with pytest.raises(ArchiveError, match=r"workloads\.compute\.datumapis\.com default/"):
        await make_backup(tmp_path / "a", Archive("now", (Part("", planes, {}),)))
    assert not names_in(tmp_path)


async def test_an_existing_backup_is_kept_when_a_new_one_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.backup"
    await make_backup(path, archive_of("web"))
    before = path.read_bytes()
    key, (version, _) = workload("web", 1)
    broken = {"project/a": LoadedPlane(5, {key: (version, b'{"metadata":{}}')})}
    with pytest.raises(ArchiveError):
        await make_backup(path, Archive("now", (Part("", broken, {}),)))
    assert path.read_bytes() == before
    assert names_in(tmp_path) == ["a.backup"]


def test_objects_of_unknown_kinds_are_included() -> None:
    metadata = {"name": "x", "resourceVersion": "1"}
    body = encode({"kind": "Own", "metadata": metadata, "anything": [1, 2]})
    planes = {"project/a": LoadedPlane(5, {ObjectKey("owns.example.com", "", "x"): (1, body)})}
    assert check_objects(Archive("now", (Part("", planes, {}),))) == 1


async def test_the_database_of_a_stopped_server_is_read(tmp_path: Path) -> None:
    (part,) = archive_of("web").parts
    write_database(tmp_path / "store.db", part.planes)
    assert await read_planes(tmp_path / "store.db") == part.planes
