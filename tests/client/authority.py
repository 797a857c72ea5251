"""A throwaway certificate authority and a server certificate for 127.0.0.1."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
START = datetime(2020, 1, 1, tzinfo=UTC)
END = START + timedelta(days=36500)


@dataclass(frozen=True, slots=True)
class Authority:
    ca_pem: bytes
    server_pem: bytes
    """Private key and certificate of the server, in one file."""


def new_authority() -> Authority:
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("test authority")
    ca = (
        _builder(issuer, issuer, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    server = (
        _builder(_name("test server"), issuer, key)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Authority(ca.public_bytes(PEM), private + server.public_bytes(PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(START)
        .not_valid_after(END)
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
