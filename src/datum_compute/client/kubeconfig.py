"""Reads kubeconfig files and gives the connection to one plane.

Rules it keeps: several files merge as kubectl merges them (the first to name an entry wins, the
first current-context counts, absent files are passed over); a path is relative to the file that
says it; nothing that we cannot honour is ignored in silence; errors name file, context and what
is missing, and never a token. Which files to read is the caller's business: no environment here.
To add a way to sign in (client certificates, exec plugins): take its key out of
``_NOT_YET_FOR_USERS`` and answer it in ``_token``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml

from datum_compute import __version__
from datum_compute.api.codec import JsonObject
from datum_compute.client.client import Client
from datum_compute.client.transport import Transport

AGENT = f"datum-compute/{__version__}"

_NOT_YET_FOR_USERS = (
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "exec",
    "auth-provider",
    "username",
    "password",
    "as",
    "as-groups",
    "as-uid",
    "as-user-extra",
)
_NOT_YET_FOR_CLUSTERS = ("proxy-url", "tls-server-name")
_TOKEN = re.compile(r"[\x21-\x7e]+")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used: which file, which context, what is missing."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one plane as one user. Without ``ca_pem`` the machine's CAs are trusted."""

    server: str
    path_prefix: str
    token: str = field(repr=False)
    ca_pem: bytes | None = field(default=None, repr=False)
    namespace: str = "default"
    context: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named entry of one of the lists, and the file that says it."""

    file: Path
    body: JsonObject


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The merged files."""

    files: tuple[Path, ...]
    current_context: str
    clusters: dict[str, _Entry]
    users: dict[str, _Entry]
    contexts: dict[str, _Entry]

    @property
    def shown(self) -> str:
        return ", ".join(str(file) for file in self.files)


def load_kubeconfig(paths: Sequence[Path]) -> Kubeconfig:
    """Merge the files that exist; at least one must."""
    files = tuple(path for path in paths if path.is_file())
    if not files:
        looked = ", ".join(str(path) for path in paths) or "no file at all"
        raise KubeconfigError(f"no kubeconfig found (looked for {looked})")
    config = Kubeconfig(files, "", {}, {}, {})
    current = ""
    for file in files:
        document = _document(file)
        current = current or str(document.get("current-context") or "")
        for key, name in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            _merge(getattr(config, key), document, key, name, file)
    return Kubeconfig(files, current, config.clusters, config.users, config.contexts)


def connection_of(config: Kubeconfig, context: str = "") -> Connection:
    """The connection of a context, by default the current one."""
    name = context or config.current_context
    if not name:
        raise KubeconfigError(
            f"{config.shown} has no current-context; name one of: {_names(config.contexts)}"
        )
    if name not in config.contexts:
        raise KubeconfigError(
            f"{config.shown} has no context {name!r}; it has: {_names(config.contexts)}"
        )
    entry = config.contexts[name]
    cluster = _referred(config.clusters, entry, "cluster", name)
    user = _referred(config.users, entry, "user", name)
    _refuse(cluster, _NOT_YET_FOR_CLUSTERS, f"the cluster of context {name!r}")
    url = _server_url(cluster, name)
    token = _token(user, name)
    _refuse_clear_text(url, cluster, name)
    return Connection(
        server=f"{url.scheme}://{url.netloc}",
        path_prefix=url.path.rstrip("/"),
        token=token,
        ca_pem=_authority(cluster, name),
        namespace=str(entry.body.get("namespace") or "default"),
        context=name,
        insecure=bool(cluster.body.get("insecure-skip-tls-verify")),
    )


def build_client(connection: Connection, transport: Transport) -> Client:
    return Client(transport, prefix=connection.path_prefix, token=connection.token, agent=AGENT)


def checked_token(text: str, source: str) -> str:
    """A token fit for a header; ``source`` says where it came from, for the error."""
    token = text.strip()
    if not token:
        raise KubeconfigError(f"{source} is empty")
    if not _TOKEN.fullmatch(token):
        raise KubeconfigError(f"{source} holds characters that no token has")
    return token


def _document(file: Path) -> JsonObject:
    try:
        document = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise KubeconfigError(f"{file} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        # The error's own text quotes the lines around the place, which may hold a token.
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise KubeconfigError(f"{file} is not YAML{where}") from None
    if not isinstance(document, dict):
        raise KubeconfigError(f"{file} is not a kubeconfig: its top level is not a mapping")
    return document


def _merge(
    entries: dict[str, _Entry], document: JsonObject, key: str, name: str, file: Path
) -> None:
    for item in document.get(key) or ():
        body = item.get(name) if isinstance(item, dict) else None
        if not isinstance(body, dict) or not item.get("name"):
            raise KubeconfigError(f"{file}: an entry of {key} lacks its name or its {name}")
        entries.setdefault(str(item["name"]), _Entry(file, body))


def _referred(entries: dict[str, _Entry], context: _Entry, what: str, name: str) -> _Entry:
    wanted = context.body.get(what)
    if not wanted:
        raise KubeconfigError(f"{context.file}: context {name!r} names no {what}")
    if wanted not in entries:
        raise KubeconfigError(
            f"{context.file}: context {name!r} names {what} {wanted!r}, which is not defined"
        )
    return entries[wanted]


def _server_url(cluster: _Entry, context: str) -> SplitResult:
    server = str(cluster.body.get("server") or "")
    url = urlsplit(server)
    if url.scheme not in ("https", "http") or not url.hostname:
        raise KubeconfigError(
            f"{cluster.file}: the cluster of context {context!r} has no server address"
        )
    if url.query or url.fragment or "@" in url.netloc:
        raise KubeconfigError(
            f"{cluster.file}: the server address of context {context!r} "
            "may hold only scheme, host, port and path"
        )
    return url


def _refuse_clear_text(url: SplitResult, cluster: _Entry, context: str) -> None:
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise KubeconfigError(
            f"{cluster.file}: the server of context {context!r} is http, "
            "which would send the token in clear text; use https"
        )


def _authority(cluster: _Entry, context: str) -> bytes | None:
    data = cluster.body.get("certificate-authority-data")
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError):
            raise KubeconfigError(
                f"{cluster.file}: certificate-authority-data of context {context!r} is not base64"
            ) from None
    path = cluster.body.get("certificate-authority")
    return _bytes_of(cluster, path, "certificate-authority", context) if path else None


def _token(user: _Entry, context: str) -> str:
    _refuse(user, _NOT_YET_FOR_USERS, f"the user of context {context!r}")
    where = f"of context {context!r} in {user.file}"
    path = user.body.get("tokenFile")
    if path:  # kubectl lets the file win as well: it is the one that gets renewed
        body = _bytes_of(user, path, "tokenFile", context)
        return checked_token(body.decode("latin-1"), f"the tokenFile {where}")
    if not user.body.get("token"):
        raise KubeconfigError(f"{user.file}: the user of context {context!r} has no token")
    return checked_token(str(user.body["token"]), f"the token {where}")


def _bytes_of(entry: _Entry, path: Any, key: str, context: str) -> bytes:
    file = entry.file.parent / str(path)
    try:
        return file.read_bytes()
    except OSError as error:
        raise KubeconfigError(
            f"{entry.file}: {key} of context {context!r}, {file}, cannot be read: {error.strerror}"
        ) from error


def _refuse(entry: _Entry, keys: Sequence[str], whose: str) -> None:
    found = [key for key in keys if entry.body.get(key)]
    if found:
        raise KubeconfigError(
            f"{entry.file}: {whose} uses {', '.join(found)}, which is not supported yet; "
            "use a context that signs in with a token or a tokenFile"
        )


def _names(entries: dict[str, _Entry]) -> str:
    return ", ".join(sorted(entries)) or "none"
