"""How to reach one plane as one user, as values.

A ``CredentialSource`` says where credentials come from that change while a program runs;
``credentials.py`` turns it into something alive. Secrets are left out of every repr.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from datum_compute.client.auth.kubeconfig_files import KubeconfigError
from datum_compute.client.transport.tls import Certificate

_TOKEN = re.compile(r"[\x21-\x7e]+")

InteractiveMode = Literal["Never", "IfAvailable", "Always"]


@dataclass(frozen=True, slots=True)
class FileSignIn:
    """Files that somebody else keeps fresh."""

    token: Path | None = None
    certificate: tuple[Path, Path] | None = None  # certificate and key


@dataclass(frozen=True, slots=True)
class ExecSignIn:
    """A program that prints an ExecCredential; ``cluster`` is None if it need not know it."""

    api_version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    interactive_mode: InteractiveMode = "IfAvailable"
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class OidcSignIn:
    """An id token, and what it takes to get the next; both kept in a user of a kubeconfig."""

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
    """A program that prints a token and nothing else; asked again when the token is refused."""

    command: str
    arguments: tuple[str, ...]
    first_token: str = field(repr=False)


CredentialSource = FileSignIn | ExecSignIn | OidcSignIn | HelperSignIn


@dataclass(frozen=True, slots=True)
class Connection:
    """Without ``ca_pem`` the machine's CAs are trusted.

    ``token`` and ``certificate`` are what was there when the connection was described; ``sign_in``,
    if any, brings newer ones.
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
    proxy: str = field(default="", repr=False)  # may hold a password
    tls_server_name: str = ""
    read_s: float = 0.0  # the longest silence that is borne; 0 is the usual one


def checked_token(text: str, source: str) -> str:
    """A token fit for a header; ``source`` says where it came from, for the error."""
    token = text.strip()
    if not token:
        raise KubeconfigError(f"{source} is empty")
    if not _TOKEN.fullmatch(token):
        raise KubeconfigError(f"{source} holds characters that no token has")
    return token
