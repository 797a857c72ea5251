"""Parameters of a connection to one plane as one user.

A ``CredentialSource`` describes credentials that change while a program runs. ``credentials.py``
obtains and renews them. Every repr omits secrets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datum_compute.client.auth.kubeconfig_files import KubeconfigError
from datum_compute.client.transport.interface import Transport
from datum_compute.client.transport.tls import Certificate

_TOKEN = re.compile(r"[\x21-\x7e]+")

InteractiveMode = Literal["Never", "IfAvailable", "Always"]


@dataclass(frozen=True, slots=True)
class FileSignIn:
    """Credential files that another program updates."""

    token: Path | None = None
    certificate: tuple[Path, Path] | None = None  # certificate and key


@dataclass(frozen=True, slots=True)
class ExecSignIn:
    """A program that prints an ExecCredential. ``cluster`` is passed to it unless it is None."""

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive_mode: InteractiveMode = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OidcSignIn:
    """An id token and the parameters to refresh it, as stored for a user of a kubeconfig."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    id_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    ca_pem: bytes | None = field(repr=False)
    file: Path
    user: str


@dataclass(frozen=True, slots=True)
class HelperSignIn:
    """A program that prints a token. It runs again when the server rejects the token."""

    command: str
    arguments: tuple[str, ...]
    first_token: str = field(repr=False)


CredentialSource = FileSignIn | ExecSignIn | OidcSignIn | HelperSignIn


@dataclass(frozen=True, slots=True)
class Connection:
    """Parameters of a connection. Without ``ca_pem``, the CAs of the system are trusted.

    ``token`` and ``certificate`` are the initial credentials. ``sign_in`` renews them.
    """

    server: str
    path_prefix: str
    token: str = field(default="", repr=False)
    ca_pem: bytes | None = field(default=None, repr=False)
    namespace: str = "default"
    context: str = ""
    insecure: bool = False
    certificate: Certificate | None = field(default=None, repr=False)
    sign_in: CredentialSource | None = None
    proxy: str = field(default="", repr=False)  # may contain a password
    tls_server_name: str = ""
    read_s: float = 0.0  # read timeout; 0: the default


OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]


def validate_token(text: str, source: str) -> str:
    """Return the token if it is valid in a header. The error names its ``source``."""
    token = text.strip()
    if not token:
        raise KubeconfigError(f"{source} is empty")
    if not _TOKEN.fullmatch(token):
        raise KubeconfigError(f"{source} contains characters that are not allowed in a token")
    return token
