"""Listening sockets and TLS contexts, the same for every port that a process serves."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServerCertificate:
    """Files (PEM) of a server certificate, and of the authority that signs client certificates."""

    authority: Path
    certificate: Path
    key: Path


def server_tls_context(
    certificate: Path,
    key: Path,
    client_authority: Path | None = None,
    *,
    client_certificates: ssl.VerifyMode = ssl.CERT_OPTIONAL,
) -> ssl.SSLContext:
    """Return the TLS context of a port. Raises OSError if a file cannot be used.

    A client certificate that ``client_authority`` did not sign ends the handshake. Without an
    authority, clients cannot present certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = client_certificates
    return context


def api_tls_context(files: ServerCertificate) -> ssl.SSLContext:
    """Return the TLS context of an API port: client certificates are optional."""
    return server_tls_context(files.certificate, files.key, files.authority)


def bind_listener(port: int, host: str = HOST) -> socket.socket:
    """Return a bound socket. Port 0 selects a free port. Raises OSError with a hint.

    The port can be bound again immediately after a restart. Child processes do not inherit it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(
            f"port {port} of {host} cannot be used ({error.strerror}); "
            "choose another, or 0 for any free one"
        ) from error
    bound.set_inheritable(False)
    return bound
