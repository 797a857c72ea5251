"""TLS towards a server: whom we trust, and the certificate we show.

Python's ssl module takes a private key only from a file. It gets one that lives in memory, or,
where the system has none of those, a private file that is gone again before anybody is answered.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from datum_compute.client.auth.connection import Certificate


def trust(
    ca_pem: bytes | None, *, insecure: bool, certificate: Certificate | None = None
) -> ssl.SSLContext:
    """The given CA alone, or those of the machine when there is none."""
    try:
        context = ssl.create_default_context(cadata=ca_pem.decode("ascii") if ca_pem else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise ValueError("the certificate authority is not a PEM certificate") from None
    # Python 3.13 asks for extensions that the certificates of many clusters lack; kubectl does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        _show(context, certificate)
    return context


def _show(context: ssl.SSLContext, certificate: Certificate) -> None:
    body = certificate.certificate_pem.rstrip() + b"\n" + certificate.key_pem
    try:
        with _file_holding(body) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError:
        raise ValueError("the client certificate and its key are no PEM pair") from None


def _no_password() -> bytes:
    """Without this OpenSSL would ask on the terminal."""
    raise ValueError("the key of the client certificate has a password, which is not supported")


@contextmanager
def _file_holding(body: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        handle = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
        path, remove = f"/proc/self/fd/{handle}", False
    else:
        handle, path = tempfile.mkstemp()
        remove = True
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(body)
            stream.flush()
            yield path
    finally:
        if remove:
            Path(path).unlink()
