"""Signed tokens (JWT, ES256): claims in, text out, and back if the signature is ours.

Signing is deterministic, so that a simulated run gives the same tokens every time.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, encode

_NUMBER_BYTES = 32  # each half of a P-256 signature
_TOKEN_LENGTH_MAX = 8192
_REMEMBERED_MAX = 1024


class TokenSigner:
    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        encoded = self._public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        key_id = _text(hashlib.sha256(encoded).digest())
        self._head = _text(encode({"alg": "ES256", "kid": key_id, "typ": "JWT"}))
        # A signature takes longer to check than a request to answer; those seen are remembered.
        self._seen: dict[str, JsonObject] = {}

    def sign(self, claims: JsonObject) -> str:
        content = f"{self._head}.{_text(encode(claims))}"
        algorithm = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
        first, second = decode_dss_signature(self._key.sign(content.encode(), algorithm))
        signature = first.to_bytes(_NUMBER_BYTES, "big") + second.to_bytes(_NUMBER_BYTES, "big")
        return f"{content}.{_text(signature)}"

    def claims_of(self, token: str) -> JsonObject | None:
        """The claims of a token that this key signed, in exactly the form it signs; else None.
        Whether they still hold is for the caller to say."""
        found = self._seen.get(token)
        if found is None:
            found = self._verified(token)
            if found is None:
                return None
            if len(self._seen) >= _REMEMBERED_MAX:
                self._seen.clear()
            self._seen[token] = found
        return found

    def _verified(self, token: str) -> JsonObject | None:
        head, _, rest = token.partition(".")
        body, _, signature = rest.partition(".")
        if len(token) > _TOKEN_LENGTH_MAX or head != self._head:
            return None
        try:
            raw = _bytes(signature)
            if len(raw) != 2 * _NUMBER_BYTES:
                return None
            self._public.verify(_der(raw), f"{head}.{body}".encode(), ec.ECDSA(hashes.SHA256()))
            claims = decode(_bytes(body))
        except (InvalidSignature, ValueError, DecodeError):
            return None
        return claims if isinstance(claims, dict) else None


def _der(signature: bytes) -> bytes:
    halves = (signature[:_NUMBER_BYTES], signature[_NUMBER_BYTES:])
    return encode_dss_signature(*(int.from_bytes(half, "big") for half in halves))


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    """Strict: exactly one text stands for some bytes, so that a token has one form only."""
    raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    if _text(raw) != text:
        raise ValueError("not the canonical form")
    return raw
