"""A throwaway certificate authority and a server certificate for 127.0.0.1."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from datum_compute.client.transport.tls import Certificate

PEM = serialization.Encoding.PEM
START = datetime(2020, 1, 1, tzinfo=UTC)
END = START + timedelta(days=36500)


@dataclass(frozen=True, slots=True)
class Authority:
    ca_pem: bytes
    server_pem: bytes
    """Private key and certificate of the server, in one file."""
    key: ec.EllipticCurvePrivateKey

    def client(self, name: str, password: bytes = b"") -> Certificate:
        """A client certificate; its key in the clear, or under a password."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _builder(_name(name), ISSUER, key).sign(self.key, hashes.SHA256())
        hidden: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            hidden = serialization.BestAvailableEncryption(password)
        private = key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, hidden)
        return Certificate(signed.public_bytes(PEM), private)


def new_authority(host: str = "127.0.0.1") -> Authority:
    """With a server certificate for one host, an address or a name."""
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = (
        _builder(ISSUER, ISSUER, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    server = (
        _builder(_name("test server"), ISSUER, key)
        .add_extension(x509.SubjectAlternativeName([_host(host)]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    private = key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Authority(ca.public_bytes(PEM), private + server.public_bytes(PEM), ca_key)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


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


ISSUER = _name("test authority")
