"""Client certificates: the users they identify, and the requests to sign them.

The common name is the user, the organizations are its groups. The TLS port has verified the
signature against the certificate authority of this installation. A connection can outlive its
certificate, so the validity is checked for each request.

A certificate can name the planes for which it is valid, as URIs ``datum-plane:<plane>``. Without
such a URI it is valid for all planes. The roles of a plane determine what the user may do there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from datum_compute.api.membership import KEY_HASH
from datum_compute.server.access.authentication import (
    EVERY_PLANE,
    User,
    with_authenticated_group,
)

PLANE_SCHEME = "datum-plane:"
_CACHED_MAX = 1024


@dataclass(frozen=True, slots=True)
class _CertificateUser:
    user: User
    valid_from_s: float
    valid_until_s: float


class CertificateReader:
    """Reads client certificates. Results are cached: reading one takes longer than a request."""

    def __init__(self) -> None:
        self._cache: dict[str, _CertificateUser | None] = {}

    def user_of(self, certificate_pem: str, now_s: float) -> tuple[User, float] | None:
        """Return the user and when the certificate expires; None unless the certificate is for
        clients, names a user and is valid now."""
        if certificate_pem not in self._cache:
            if len(self._cache) >= _CACHED_MAX:
                self._cache.clear()
            self._cache[certificate_pem] = _read_certificate(certificate_pem)
        found = self._cache[certificate_pem]
        if found is None or not found.valid_from_s <= now_s < found.valid_until_s:
            return None
        return found.user, found.valid_until_s


def _read_certificate(certificate_pem: str) -> _CertificateUser | None:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        names = _subject_values(certificate, NameOID.COMMON_NAME)
        groups = _subject_values(certificate, NameOID.ORGANIZATION_NAME)
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        planes = _planes_of(certificate)
    except (ValueError, x509.ExtensionNotFound):
        return None
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages or len(names) != 1:
        return None
    if not all(text and text.isprintable() for text in (*names, *groups)):
        return None
    extra = ((KEY_HASH, (_hash_key(certificate),)),)
    return _CertificateUser(
        with_authenticated_group(User(names[0], tuple(groups), planes, extra=extra)),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A certificate signing request that is signed by its own key."""

    request: x509.CertificateSigningRequest
    key_hash: str


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate (PEM), the certificate authority that signed it, and when it expires."""

    certificate: str
    authority: str
    until_s: float


# Signs a request for a user with groups.
Certify = Callable[[SigningRequest, str, tuple[str, ...]], IssuedCertificate]


def read_signing_request(request_pem: str) -> SigningRequest | None:
    """Return the request; None unless it is valid and has a P-256 key."""
    try:
        request = x509.load_pem_x509_csr(request_pem.encode())
        key = request.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
            return None
        valid = request.is_signature_valid
    except (ValueError, TypeError):
        return None
    return SigningRequest(request, _hash_key(request)) if valid else None


def _hash_key(source: x509.Certificate | x509.CertificateSigningRequest) -> str:
    key = source.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(key).hexdigest()


def _subject_values(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(part.value) for part in certificate.subject.get_attributes_for_oid(oid)]


def _planes_of(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset({EVERY_PLANE})
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    planes = [uri.removeprefix(PLANE_SCHEME) for uri in uris if uri.startswith(PLANE_SCHEME)]
    return frozenset(planes) if planes else frozenset({EVERY_PLANE})
