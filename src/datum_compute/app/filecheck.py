"""Whether the files beside the store of a backup can be used, before they take the place of others.

A start with a damaged key or certificate would fail, or make a new one that nobody trusts; so it is
named while the old state is still there. What is wrong is told, what is in the file never.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from datum_compute.api.meta.codec import DecodeError, decode_as
from datum_compute.api.planes import cell_plane
from datum_compute.app.backup.archive import Archive, ArchiveError
from datum_compute.app.cell_membership import Membership

# A certificate and the key that it is of.
_PAIRS = (("ca.crt", "ca.key"), ("server.crt", "server.key"), ("cell.crt", "cell.key"))


def check_files(archive: Archive) -> None:
    """Raises ArchiveError for the first that cannot be used."""
    for part in archive.parts:
        whose = f" of cell {part.name}" if part.name else ""
        for name, content in sorted(part.files.items()):
            if not _can_be_used(name, content):
                raise ArchiveError(f"{name}{whose} is damaged: it holds no {_KINDS[name][0]}")
        for certificate, key in _PAIRS:
            if not _belong_together(part.files, certificate, key):
                raise ArchiveError(f"{certificate}{whose} is not a certificate of {key}")


def _can_be_used(name: str, content: bytes) -> bool:
    _, read = _KINDS[name]
    try:
        read(content)
    except (DecodeError, ValueError, TypeError, KeyError, UnsupportedAlgorithm):
        return False
    return True


def _belong_together(files: Mapping[str, bytes], certificate: str, key: str) -> bool:
    if certificate not in files or key not in files:
        return True
    own = _key(files[key]).public_key()
    return x509.load_pem_x509_certificate(files[certificate]).public_key() == own


def _key(content: bytes) -> PrivateKeyTypes:
    return load_pem_private_key(content, None)


def _port(content: bytes) -> None:
    if not 0 < decode_as(content, dict[str, int])["port"] < 65536:
        raise ValueError


def _cells(content: bytes) -> None:
    for name in decode_as(content, dict[str, list[str]])["cells"]:
        cell_plane(name)


def _texts(content: bytes) -> None:
    if not decode_as(content, dict[str, str]):
        raise ValueError


def _membership(content: bytes) -> None:
    decode_as(content, Membership)


# What each file of ``statefiles.KEPT`` holds, and how that is read.
_KINDS: Mapping[str, tuple[str, Callable[[bytes], object]]] = {
    "tokens.json": ("tokens", _texts),
    "ca.crt": ("certificate", x509.load_pem_x509_certificates),
    "ca.key": ("private key", _key),
    "server.crt": ("certificate", x509.load_pem_x509_certificates),
    "server.key": ("private key", _key),
    "service-accounts.key": ("private key", _key),
    "port.json": ("port", _port),
    "cells.json": ("names of cells", _cells),
    "driver.json": ("driver", _texts),
    "membership.json": ("membership", _membership),
    "cell.key": ("private key", _key),
    "cell.crt": ("certificate", x509.load_pem_x509_certificates),
    "hub-ca.crt": ("certificate", x509.load_pem_x509_certificates),
}
