"""Users of client certificates: the common name is the user, the organisations are its groups.

The TLS port has checked the signature against the authority of this installation before anything
arrives here. A connection may outlive its certificate, so the dates are looked at again for every
request. A certificate may name the planes it is for (URIs ``datum-plane:<plane>``); without any it
is for all of them, and the roles of each plane decide.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from datum_compute.api.membership import KEY_HASH
from datum_compute.server.access.authentication import EVERY_PLANE, User, authenticated

PLANE_SCHEME = "datum-plane:"
_REMEMBERED_MAX = 1024


@dataclass(frozen=True, slots=True)
class CertificateUser:
    user: User
    since_s: float
    until_s: float


class Certificates:
    """Reading a certificate takes longer than answering a request; those seen are remembered."""

    def __init__(self) -> None:
        self._seen: dict[str, CertificateUser | None] = {}

    def user_of(self, certificate_pem: str, now_s: float) -> CertificateUser | None:
        """The user, if the certificate is for clients, names one, and is valid now."""
        if certificate_pem not in self._seen:
            if len(self._seen) >= _REMEMBERED_MAX:
                self._seen.clear()
            self._seen[certificate_pem] = _read(certificate_pem)
        found = self._seen[certificate_pem]
        return found if found is not None and found.since_s <= now_s < found.until_s else None


def _read(certificate_pem: str) -> CertificateUser | None:
    try:
        certificate = x509.load_pem_x509_certificate(certificate_pem.encode())
        names = _texts(certificate, NameOID.COMMON_NAME)
        groups = _texts(certificate, NameOID.ORGANIZATION_NAME)
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        planes = _planes(certificate)
    except (ValueError, x509.ExtensionNotFound):
        return None
    if ExtendedKeyUsageOID.CLIENT_AUTH not in uses or len(names) != 1:
        return None
    if not all(text and text.isprintable() for text in (*names, *groups)):
        return None
    return CertificateUser(
        authenticated(User(names[0], tuple(groups), planes, extra=_key_of(certificate))),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """A certificate signing request that its own key has signed."""

    request: x509.CertificateSigningRequest
    key_hash: str


def read_request(request_pem: str) -> SigningRequest | None:
    """None for what is no such request, or is of another sort of key than we sign."""
    try:
        request = x509.load_pem_x509_csr(request_pem.encode())
        key = request.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
            return None
        valid = request.is_signature_valid
    except (ValueError, TypeError):
        return None
    return SigningRequest(request, _digest(request)) if valid else None


def _key_of(certificate: x509.Certificate) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ((KEY_HASH, (_digest(certificate),)),)


def _digest(holder: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """By which a key is known."""
    key = holder.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(key).hexdigest()


def _texts(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(part.value) for part in certificate.subject.get_attributes_for_oid(oid)]


def _planes(certificate: x509.Certificate) -> frozenset[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset({EVERY_PLANE})
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    planes = [uri.removeprefix(PLANE_SCHEME) for uri in uris if uri.startswith(PLANE_SCHEME)]
    return frozenset(planes) if planes else frozenset({EVERY_PLANE})
