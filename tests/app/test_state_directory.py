"""The state directory: certificates, tokens, keys, the kubeconfig and settings of the last run."""

from __future__ import annotations

import errno
import os
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from datum_compute.api.meta.codec import decode
from datum_compute.api.planes import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.settings.settings import local_settings, manager_settings
from datum_compute.app.state_credentials import ensure_credentials, ensure_signer, write_kubeconfig
from datum_compute.app.state_directory import (
    StateError,
    describe_disk_problem,
    describe_statvfs_problem,
    ensure_private_directory,
    read_last_cells,
    read_last_port,
    replace_or_overwrite,
    require_database,
    save_cells,
    save_port,
    write_private,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLANES = (PLATFORM, project_plane("default"), HUB, cell_plane("dfw"))


def test_certificates_are_private_and_kept(tmp_path: Path) -> None:
    first = ensure_certificate(tmp_path, NOW)
    contents = first.certificate.read_bytes()
    assert (
        ensure_certificate(tmp_path, NOW + timedelta(days=100)).certificate.read_bytes() == contents
    )
    assert all(stat.S_IMODE(f.stat().st_mode) == 0o600 for f in tmp_path.iterdir())


def test_the_server_certificate_is_renewed_before_it_expires(tmp_path: Path) -> None:
    before = ensure_certificate(tmp_path, NOW)
    authority, old = before.authority.read_bytes(), before.certificate.read_bytes()
    after = ensure_certificate(tmp_path, NOW + timedelta(days=340))
    assert after.authority.read_bytes() == authority
    assert after.certificate.read_bytes() != old


def test_the_certificate_is_for_loopback_and_signed_by_the_authority(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NOW)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    certificate.verify_directly_issued_by(authority)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    context = ssl.create_default_context(cafile=str(files.authority))
    assert context.get_ca_certs()


def test_tokens_are_kept_and_new_planes_get_new_ones(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    first = ensure_credentials(file, PLANES[:2])
    second = ensure_credentials(file, PLANES)
    assert second.manager == first.manager
    assert {p: second.planes[p] for p in PLANES[:2]} == first.planes
    assert len(set(second.planes.values())) == len(PLANES)
    assert second.manager not in repr(second)


def test_a_token_is_valid_for_its_plane_only(tmp_path: Path) -> None:
    credentials = ensure_credentials(tmp_path / "tokens.json", PLANES)
    user = credentials.authenticator().user_of(credentials.planes[HUB])
    assert user is not None
    assert user.may_reach(HUB)
    assert not [plane for plane in PLANES if plane != HUB and user.may_reach(plane)]


def test_the_kubeconfig_has_a_context_per_plane_and_is_not_rewritten(tmp_path: Path) -> None:
    credentials = ensure_credentials(tmp_path / "tokens.json", PLANES)
    path = tmp_path / "kubeconfig"

    def write() -> int:
        write_kubeconfig(
            path,
            server="https://127.0.0.1:1",
            authority=b"pem",
            tokens=credentials.planes,
            current=PLANES[1],
        )
        return path.stat().st_ino

    assert write() == write()
    config = yaml.safe_load(path.read_text())
    assert [c["name"] for c in config["contexts"]] == list(PLANES)
    servers = {c["name"]: c["cluster"]["server"] for c in config["clusters"]}
    assert servers[HUB] == "https://127.0.0.1:1/planes/hub"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_files_are_replaced_atomically_and_private(tmp_path: Path) -> None:
    directory = ensure_private_directory(tmp_path / "state")
    write_private(directory / "a", b"one")
    write_private(directory / "a", b"two")
    assert (directory / "a").read_bytes() == b"two"
    assert [f.name for f in directory.iterdir()] == ["a"]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_flags_override_the_environment() -> None:
    arguments = ["--state-dir", "d"]
    assert local_settings(arguments, {"DATUM_LOG_LEVEL": "debug"}).telemetry.log_level == "debug"
    flagged = local_settings([*arguments, "--log-level", "error"], {"DATUM_LOG_LEVEL": "debug"})
    assert flagged.telemetry.log_level == "error"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--state-dir", "d"],
        ["--state-dir", "d", "--kubeconfig", "k"],
        ["--kubeconfig", "k", "--enable-cell-controllers"],
    ],
    ids=["no kubeconfig", "nothing enabled", "no state directory"],
)
def test_a_manager_without_required_flags_does_not_start(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        manager_settings(arguments, {})
    assert stopped.value.code == 2
    assert "--" in capsys.readouterr().err


def test_a_file_is_overwritten_in_place_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    replace_or_overwrite(path, b'{"pid":12345}')
    draft = tmp_path / ".server.json.new"
    draft.symlink_to("/dev/full")
    replace_or_overwrite(path, b'{"pid":0}')
    assert decode(path.read_bytes()) == {"pid": 0}
    assert list(tmp_path.iterdir()) == [path]


def test_a_new_file_on_a_full_disk_is_an_error_and_leaves_no_draft(tmp_path: Path) -> None:
    draft = tmp_path / ".server.json.new"
    draft.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        replace_or_overwrite(tmp_path / "server.json", b"{}")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


def test_problems_of_a_disk_are_described(tmp_path: Path) -> None:
    def disk(*, free: int = 1000, blocks: int = 1000, flags: int = 0) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, blocks, free, free, 10, 10, 10, flags, 255))

    state = Path("/state")
    assert (
        describe_statvfs_problem(state, disk(free=2))
        == "the disk that holds /state is full (8192 bytes free)"
    )
    assert (
        describe_statvfs_problem(state, disk(flags=os.ST_RDONLY))
        == "the disk that holds /state is read-only"
    )
    assert describe_statvfs_problem(state, disk()) == ""
    assert describe_statvfs_problem(state, disk(free=0, blocks=0)) == ""
    assert describe_disk_problem(tmp_path / "not" / "there") == ""


def test_a_missing_database_is_an_error_after_the_first_start(tmp_path: Path) -> None:
    require_database(tmp_path)  # a first start
    (tmp_path / "kubeconfig").touch()
    with pytest.raises(StateError, match=r"store\.db, .*is missing.*local restore"):
        require_database(tmp_path)
    (tmp_path / "store.db").touch()
    require_database(tmp_path)


CELLS = (cell_plane("dfw"), cell_plane("ams"))


def test_port_and_cells_of_the_last_run_are_read(tmp_path: Path) -> None:
    save_port(tmp_path, 4711)
    save_cells(tmp_path, CELLS)
    assert read_last_port(tmp_path) == 4711
    assert read_last_cells(tmp_path) == CELLS


def test_unchanged_cells_are_not_written(tmp_path: Path) -> None:
    save_cells(tmp_path, CELLS)
    before = (tmp_path / "cells.json").stat().st_ino
    save_cells(tmp_path, CELLS)
    assert (tmp_path / "cells.json").stat().st_ino == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"port": "x"}', '{"port": 70000}', '{"cells": ["a/b"]}', '{"cells": 1}'],
)
def test_damaged_files_of_the_last_run_are_ignored(tmp_path: Path, text: str) -> None:
    for name in ("port.json", "cells.json"):
        (tmp_path / name).write_text(text)
    assert read_last_port(tmp_path) == 0
    assert read_last_cells(tmp_path) == ()


def key_of_another_curve() -> bytes:
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_the_signing_key_is_created_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "service-accounts.key"
    ensure_signer(path)
    made = path.read_bytes()
    ensure_signer(path)
    assert path.read_bytes() == made
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"no key", key_of_another_curve()])
def test_the_error_of_an_invalid_signing_key_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "service-accounts.key"
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"service-accounts.key is not a P-256 key"):
        ensure_signer(path)
