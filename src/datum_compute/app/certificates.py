"""The certificate authority of an installation, and the server and client certificates it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from datum_compute.api.planes import PlaneName
from datum_compute.app.state_directory import write_private
from datum_compute.server.access.client_certificates import (
    PLANE_SCHEME,
    IssuedCertificate,
    SigningRequest,
)
from datum_compute.server.http.listen import ServerCertificate

_AUTHORITY_LIFETIME = timedelta(days=3650)
_SERVER_LIFETIME = timedelta(days=365)
_CLIENT_LIFETIME = timedelta(days=30)
_RENEW_BEFORE = timedelta(days=30)
# Certificates are valid before they are issued, because clocks differ.
BACKDATED = timedelta(minutes=5)


def ensure_certificate(
    directory: Path, now: datetime, *, names: Sequence[str] = ()
) -> ServerCertificate:
    """Return the server certificate in ``directory``, for localhost and ``names``.

    A new one is signed at the first call, before the current one expires, and if a name is missing.
    """
    files = ServerCertificate(
        directory / "ca.crt", directory / "server.crt", directory / "server.key"
    )
    authority_key_file = directory / "ca.key"
    if not (files.authority.exists() and authority_key_file.exists()):
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(authority_key_file, _pem(key))
        write_private(files.authority, authority_of(key, now).public_bytes(_PEM))
        files.certificate.unlink(missing_ok=True)
    if not _is_valid(files, now, names):
        authority_key, authority = _load_authority(directory)
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(files.key, _pem(key))
        signed = _server(key, authority, authority_key, now, names)
        write_private(files.certificate, signed.public_bytes(_PEM))
    return files


@dataclass(frozen=True, slots=True, repr=False)
class ClientCertificate:
    """A certificate and its key, as PEM. The repr omits the key."""

    certificate: bytes
    key: bytes


def issue_client_certificate(
    directory: Path,
    user: str,
    now: datetime,
    *,
    groups: Sequence[str] = (),
    planes: Sequence[PlaneName] = (),
    lifetime: timedelta = _CLIENT_LIFETIME,
) -> ClientCertificate:
    """Issue a certificate for a user and its groups. With ``planes``, only these accept it.

    It cannot be revoked, so use a short lifetime.
    """
    authority_key, authority = _load_authority(directory)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _client(user, groups, authority, authority_key, key.public_key(), now, lifetime)
    if planes:
        uris = [x509.UniformResourceIdentifier(f"{PLANE_SCHEME}{plane}") for plane in planes]
        builder = builder.add_extension(x509.SubjectAlternativeName(uris), critical=False)
    signed = builder.sign(authority_key, hashes.SHA256())
    return ClientCertificate(signed.public_bytes(_PEM), _pem(key))


def certify(
    directory: Path,
    requested: SigningRequest,
    user: str,
    groups: Sequence[str],
    now: datetime,
    lifetime: timedelta = _CLIENT_LIFETIME,
) -> IssuedCertificate:
    """Sign a certificate for the key of a request, with the authority in ``directory``."""
    authority_key, authority = _load_authority(directory)
    return sign_certificate(authority_key, authority, requested, user, groups, now, lifetime)


def sign_certificate(
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    requested: SigningRequest,
    user: str,
    groups: Sequence[str],
    now: datetime,
    lifetime: timedelta,
) -> IssuedCertificate:
    """Sign a certificate for the key of a request. The subject of the request is ignored."""
    key = requested.request.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey), "read_request accepts no other key"
    builder = _client(user, groups, authority, authority_key, key, now, lifetime)
    signed = builder.sign(authority_key, hashes.SHA256())
    return IssuedCertificate(
        signed.public_bytes(_PEM).decode(),
        authority.public_bytes(_PEM).decode(),
        signed.not_valid_after_utc.timestamp(),
    )


def signing_request(key_file: Path, user: str) -> str:
    """Return a signing request for the key in the file. Create the key if there is none."""
    if not key_file.exists():
        write_private(key_file, _pem(ec.generate_private_key(ec.SECP256R1())))
    key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey), f"{key_file} contains a key of another type"
    return request_of(key, user)


def request_of(key: ec.EllipticCurvePrivateKey, user: str) -> str:
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(user))
    return request.sign(key, hashes.SHA256()).public_bytes(_PEM).decode()


def validity(certificate_pem: bytes) -> tuple[datetime, datetime]:
    """Return the begin and the end of the validity of a certificate."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    return certificate.not_valid_before_utc, certificate.not_valid_after_utc


def _client(
    user: str,
    groups: Sequence[str],
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    builder = _builder(subject, authority.subject, key, now, lifetime)
    return _add_common_extensions(builder, authority_key).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
    )


_PEM = serialization.Encoding.PEM


def _load_authority(directory: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key, x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes())


def _is_valid(files: ServerCertificate, now: datetime, names: Sequence[str]) -> bool:
    if not (files.certificate.exists() and files.key.exists()):
        return False
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
    except ValueError:
        return False  # damaged: the caller signs a new certificate
    alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    matches = certificate.public_key() == key.public_key()
    matches = matches and all(_alternative(name) in list(alternatives) for name in names)
    return matches and certificate.not_valid_after_utc - _RENEW_BEFORE > now


def authority_of(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    """Return a self-signed certificate of an authority."""
    name = _name("datum-compute local authority")
    return (
        _builder(name, name, key.public_key(), now, _AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _server(
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    authority_key: ec.EllipticCurvePrivateKey,
    now: datetime,
    more_names: Sequence[str],
) -> x509.Certificate:
    names = [_alternative(name) for name in ("localhost", "127.0.0.1", "::1", *more_names)]
    name, public = _name("datum-compute"), key.public_key()
    builder = _builder(name, authority.subject, public, now, _SERVER_LIFETIME)
    return (
        _add_common_extensions(builder, authority_key)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _add_common_extensions(
    builder: x509.CertificateBuilder, authority_key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    """Add the extensions that all certificates except that of the authority have in common."""
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(signer, critical=False)
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
