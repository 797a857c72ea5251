"""TLS towards a server: which authorities the client trusts, and the certificate it presents.

Python's ssl module reads a private key only from a file. The key is passed in a file in memory.
Systems without such files get a private temporary file, which is deleted before the first request.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Certificate:
    """A client certificate (with its chain) and its private key."""

    certificate_pem: bytes
    key_pem: bytes = field(repr=False)


def client_tls_context(
    ca_pem: bytes | None, *, insecure: bool = False, certificate: Certificate | None = None
) -> ssl.SSLContext:
    """Return a context that trusts only ``ca_pem``, or the authorities of the system without it.

    Raise ValueError if the authority or the certificate cannot be used.
    """
    try:
        context = ssl.create_default_context(cadata=ca_pem.decode("ascii") if ca_pem else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise ValueError("the certificate authority is not a PEM certificate") from None
    # Python 3.13 requires extensions that the certificates of many clusters lack. kubectl does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _load_certificate(context, certificate)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    content = certificate.certificate_pem.rstrip() + b"\n" + certificate.key_pem
    try:
        with _private_file(content) as path:
            context.load_cert_chain(path, password=_reject_password)
    except ssl.SSLError:
        raise ValueError("the client certificate and its key are not a PEM pair") from None


def _reject_password() -> bytes:
    """Without this callback OpenSSL would prompt on the terminal."""
    raise ValueError("the key of the client certificate has a password, which is not supported")


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
        path, is_temporary = f"/proc/self/fd/{descriptor}", False
    else:
        descriptor, path = tempfile.mkstemp()
        is_temporary = True
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            yield path
    finally:
        if is_temporary:
            Path(path).unlink()
