"""Build the connection of a context from a kubeconfig.

A field that is not supported is an error. Errors name the file, the context and the missing field,
and never quote a token. ``kubeconfig_files.py`` reads and merges the files.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

from datum_compute import __version__
from datum_compute.api.meta.codec import JsonObject
from datum_compute.client.auth.connection import (
    Connection,
    CredentialSource,
    ExecSignIn,
    FileSignIn,
    OidcSignIn,
    validate_token,
)
from datum_compute.client.auth.kubeconfig_files import (
    Entry,
    Kubeconfig,
    KubeconfigError,
    file_or_inline,
    load_kubeconfig,
    read_named_file,
)
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.client.transport.tls import Certificate

# --- Credentials of a user in a kubeconfig
# The precedence is that of kubectl: a token file, then a token, then a plugin. A certificate may
# accompany each of them. To add a credential source: add a class to ``connection.py``, parse it
# here, and obtain its credentials in ``credentials.py``.


_NOT_SUPPORTED = ("username", "password", "as", "as-groups", "as-uid", "as-user-extra")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_MODES = ("Never", "IfAvailable", "Always")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """A validated cluster entry."""

    server: str
    ca_pem: bytes | None
    insecure: bool
    tls_server_name: str
    proxy: str
    extensions: Sequence[Any]


@dataclass(frozen=True, slots=True)
class UserCredentials:
    token: str = field(default="", repr=False)
    certificate: Certificate | None = field(default=None, repr=False)
    sign_in: CredentialSource | None = None


def read_credentials(user: Entry, context: str, cluster: ClusterEntry) -> UserCredentials:
    found = [key for key in _NOT_SUPPORTED if user.body.get(key)]
    if found:
        raise KubeconfigError(
            f"{user.file}: the user of context {context!r} uses {', '.join(found)}, which is not "
            "supported; sign in with a token, a certificate or a plugin"
        )
    token, token_file = _token(user, context)
    certificate, certificate_files = _certificate(user, context)
    sign_in: CredentialSource | None = None
    if token:
        sign_in = None
    elif user.body.get("exec") and user.body.get("auth-provider"):
        raise KubeconfigError(
            f"{user.file}: the user of context {context!r} has both exec and auth-provider"
        )
    elif user.body.get("exec"):
        sign_in = _exec(user, context, cluster)
    elif user.body.get("auth-provider"):
        sign_in = _oidc(user, context)
    elif certificate is None:
        raise KubeconfigError(
            f"{user.file}: the user of context {context!r} has no token, no certificate and no "
            "plugin to sign in with"
        )
    if sign_in is None and (token_file or certificate_files):
        sign_in = FileSignIn(token_file, certificate_files)
    return UserCredentials(token, certificate, sign_in)


def _token(user: Entry, context: str) -> tuple[str, Any]:
    """Return the token, and the path of its file if the kubeconfig names a token file."""
    where = f"of context {context!r} in {user.file}"
    path = user.body.get("tokenFile")
    if path:  # as in kubectl, the file has precedence, because another program renews it
        body = read_named_file(user, str(path), "tokenFile", context)
        token = validate_token(body.decode("latin-1"), f"the tokenFile {where}")
        return token, user.path_of(str(path))
    if user.body.get("token"):
        return validate_token(str(user.body["token"]), f"the token {where}"), None
    return "", None


def _certificate(user: Entry, context: str) -> tuple[Certificate | None, Any]:
    """Return the certificate, and the paths of its files if the kubeconfig names files."""
    certificate = file_or_inline(user, "client-certificate", context)
    key = file_or_inline(user, "client-key", context)
    if certificate is None and key is None:
        return None, None
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise KubeconfigError(
            f"{user.file}: the user of context {context!r} has no {missing}; client-certificate "
            "and client-key must be set together"
        )
    names = ("client-certificate", "client-key")
    inline = any(user.body.get(f"{name}-data") for name in names)
    files = None if inline else tuple(user.path_of(str(user.body[name])) for name in names)
    return Certificate(certificate, key), files


def _exec(user: Entry, context: str, cluster: ClusterEntry) -> ExecSignIn:
    config = _mapping(user, "exec", user.body["exec"], context)
    problem = _exec_problem(config)
    if problem:
        raise KubeconfigError(f"{user.file}: exec of the user of context {context!r}: {problem}")
    command = str(config["command"])
    if os.sep in command:
        command = str(user.path_of(command))
    return ExecSignIn(
        api_version=config["apiVersion"],
        command=command,
        arguments=tuple(str(word) for word in config.get("args") or ()),
        environment=tuple(
            (str(item["name"]), str(item.get("value") or "")) for item in config.get("env") or ()
        ),
        interactive_mode=config.get("interactiveMode") or "IfAvailable",
        install_hint=str(config.get("installHint") or "").strip(),
        cluster=_exec_cluster(cluster) if config.get("provideClusterInfo") else None,
    )


def _exec_problem(config: JsonObject) -> str:
    version, mode = config.get("apiVersion"), config.get("interactiveMode")
    if version not in _EXEC_VERSIONS:
        return f"apiVersion must be one of {', '.join(_EXEC_VERSIONS)}"
    if not config.get("command"):
        return "command is missing"
    # v1 requires a mode. In v1beta1 a missing mode means IfAvailable.
    if mode not in (_EXEC_MODES if version == _EXEC_VERSIONS[0] else (*_EXEC_MODES, None, "")):
        return f"interactiveMode must be one of {', '.join(_EXEC_MODES)}"
    if not isinstance(config.get("args") or [], list):
        return "args is not a list"
    if not _is_environment(config.get("env") or []):
        return "env is not a list of names and values"
    return ""


def _is_environment(items: Any) -> bool:
    return isinstance(items, list) and all(
        isinstance(item, dict) and item.get("name") for item in items
    )


def _exec_cluster(cluster: ClusterEntry) -> JsonObject:
    """Return ``spec.cluster`` of the ExecCredential that the plugin receives."""
    info: JsonObject = {"server": cluster.server}
    if cluster.tls_server_name:
        info["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure:
        info["insecure-skip-tls-verify"] = True
    if cluster.ca_pem is not None:
        info["certificate-authority-data"] = base64.b64encode(cluster.ca_pem).decode()
    if cluster.proxy:
        info["proxy-url"] = cluster.proxy
    for item in cluster.extensions:
        if isinstance(item, dict) and item.get("name") == _EXEC_EXTENSION:
            info["config"] = item.get("extension")
    return info


def _oidc(user: Entry, context: str) -> OidcSignIn:
    provider = _mapping(user, "auth-provider", user.body["auth-provider"], context)
    if provider.get("name") != "oidc":
        raise KubeconfigError(
            f"{user.file}: auth-provider {provider.get('name')!r} of context {context!r} is not "
            "supported; use the provider oidc or an exec plugin"
        )
    config = _mapping(user, "auth-provider", provider.get("config") or {}, context)
    missing = [key for key in ("idp-issuer-url", "client-id") if not config.get(key)]
    if missing:
        raise KubeconfigError(
            f"{user.file}: auth-provider of context {context!r} lacks {', '.join(missing)}"
        )
    authority = Entry(user.file, config)
    return OidcSignIn(
        issuer=str(config["idp-issuer-url"]).rstrip("/"),
        client_id=str(config["client-id"]),
        client_secret=str(config.get("client-secret") or ""),
        id_token=str(config.get("id-token") or ""),
        refresh_token=str(config.get("refresh-token") or ""),
        ca_pem=file_or_inline(authority, "idp-certificate-authority", context),
        file=user.file,
        user=user.name,
    )


def _mapping(user: Entry, key: str, value: Any, context: str) -> JsonObject:
    if not isinstance(value, dict):
        raise KubeconfigError(
            f"{user.file}: {key} of the user of context {context!r} is not a mapping"
        )
    return value


# --- kubeconfig


__all__ = [
    "Connection",
    "Kubeconfig",
    "KubeconfigError",
    "build_client",
    "connection_of",
    "load_kubeconfig",
    "validate_token",
]

AGENT = f"datum-compute/{__version__}"

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def connection_of(config: Kubeconfig, context: str = "") -> Connection:
    """Return the connection of a context, by default the current one."""
    name = context or config.current_context
    if not name:
        raise KubeconfigError(
            f"{config.file_list} has no current-context; name one of: {_names(config.contexts)}"
        )
    if name not in config.contexts:
        raise KubeconfigError(
            f"{config.file_list} has no context {name!r}; it has: {_names(config.contexts)}"
        )
    entry = config.contexts[name]
    cluster = _find_entry(config.clusters, entry, "cluster", name)
    user = _find_entry(config.users, entry, "user", name)
    url = _server_url(cluster, name)
    _refuse_clear_text(url, cluster, name)
    checked_cluster = _cluster(cluster, name)
    credentials = read_credentials(user, name, checked_cluster)
    return Connection(
        server=f"{url.scheme}://{url.netloc}",
        path_prefix=url.path.rstrip("/"),
        token=credentials.token,
        ca_pem=checked_cluster.ca_pem,
        namespace=str(entry.body.get("namespace") or "default"),
        context=name,
        insecure=checked_cluster.insecure,
        certificate=credentials.certificate,
        sign_in=credentials.sign_in,
        proxy=checked_cluster.proxy,
        tls_server_name=checked_cluster.tls_server_name,
    )


def build_client(
    connection: Connection,
    transport: Transport,
    on_warning: Callable[[str], None] | None = None,
) -> Client:
    """Return a client that sends the token, unless the transport renews credentials."""
    token = connection.token if connection.sign_in is None else ""
    return Client(
        transport,
        prefix=connection.path_prefix,
        token=token,
        agent=AGENT,
        on_warning=on_warning,
    )


def _cluster(cluster: Entry, context: str) -> ClusterEntry:
    insecure = bool(cluster.body.get("insecure-skip-tls-verify"))
    ca_pem = file_or_inline(cluster, "certificate-authority", context)
    if insecure and ca_pem is not None:
        raise KubeconfigError(
            f"{cluster.file}: the cluster of context {context!r} has a certificate-authority "
            "and insecure-skip-tls-verify; only one of them is allowed"
        )
    return ClusterEntry(
        server=str(cluster.body["server"]),
        ca_pem=ca_pem,
        insecure=insecure,
        tls_server_name=str(cluster.body.get("tls-server-name") or ""),
        proxy=_proxy(cluster, context),
        extensions=cluster.body.get("extensions") or (),
    )


def _proxy(cluster: Entry, context: str) -> str:
    proxy = str(cluster.body.get("proxy-url") or "")
    if not proxy:
        return ""
    try:
        url = urlsplit(proxy)
        known = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        known = False
    if not known:
        raise KubeconfigError(
            f"{cluster.file}: the proxy-url of context {context!r} must be an http or https URL; "
            "other proxies (socks5) are not supported"
        )
    return proxy


def _find_entry(entries: dict[str, Entry], context: Entry, what: str, name: str) -> Entry:
    wanted = context.body.get(what)
    if not wanted:
        raise KubeconfigError(f"{context.file}: context {name!r} names no {what}")
    if wanted not in entries:
        raise KubeconfigError(
            f"{context.file}: context {name!r} names {what} {wanted!r}, which is not defined"
        )
    return entries[wanted]


def _server_url(cluster: Entry, context: str) -> SplitResult:
    server = str(cluster.body.get("server") or "")
    url = urlsplit(server)
    if url.scheme not in ("https", "http") or not url.hostname:
        raise KubeconfigError(
            f"{cluster.file}: the cluster of context {context!r} has no server address"
        )
    if url.query or url.fragment or "@" in url.netloc:
        raise KubeconfigError(
            f"{cluster.file}: the server address of context {context!r} "
            "may contain only scheme, host, port and path"
        )
    return url


def _refuse_clear_text(url: SplitResult, cluster: Entry, context: str) -> None:
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise KubeconfigError(
            f"{cluster.file}: the server of context {context!r} is http, "
            "so the token would be sent in clear text; use https"
        )


def _names(entries: dict[str, Entry]) -> str:
    return ", ".join(sorted(entries)) or "none"
