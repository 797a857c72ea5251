"""The key that signs tokens of service accounts: made once, kept in one private file."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from datum_compute.app.state_directory import StateError, write_private
from datum_compute.server.access.signer import TokenSigner


def ensure_signer(path: Path) -> TokenSigner:
    """Signs with the key in the file. Without the file every token that was given out is void."""
    if not path.exists():
        made = ec.generate_private_key(ec.SECP256R1())
        encoded = made.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_private(path, encoded)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise StateError(f"{path} does not hold a P-256 key; remove it, and a new one is made")
    return TokenSigner(key)
