"""The key of service accounts: kept, and said in one line when it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from datum_compute.app.state_credentials import ensure_signer
from datum_compute.app.state_directory import StateError


def other_curve() -> bytes:
    return ec.generate_private_key(ec.SECP384R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "service-accounts.key"
    ensure_signer(path)
    made = path.read_bytes()
    ensure_signer(path)
    assert path.read_bytes() == made
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"no key", other_curve()])
def test_a_key_that_cannot_be_used_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "service-accounts.key"
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"service-accounts.key does not hold a P-256 key"):
        ensure_signer(path)
