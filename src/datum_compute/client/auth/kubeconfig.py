"""From a kubeconfig to the connection of one context.

Rules it keeps: nothing that we cannot honour is ignored in silence; errors name file, context and
what is missing, and never a token. Files and merging are in ``kubeconfig_files.py``, the ways to
sign in are in ``kubeconfig_users.py``.
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from datum_compute import __version__
from datum_compute.client.auth.connection import Connection, checked_token
from datum_compute.client.auth.kubeconfig_files import (
    Entry,
    Kubeconfig,
    KubeconfigError,
    file_or_inline,
    load_kubeconfig,
)
from datum_compute.client.client import Client
from datum_compute.client.kubeconfig_users import Cluster, identity_of
from datum_compute.client.transport.interface import Transport

__all__ = [
    "Connection",
    "Kubeconfig",
    "KubeconfigError",
    "build_client",
    "checked_token",
    "connection_of",
    "load_kubeconfig",
]

AGENT = f"datum-compute/{__version__}"

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


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
    url = _server_url(cluster, name)
    _refuse_clear_text(url, cluster, name)
    reached = _cluster(cluster, name)
    identity = identity_of(user, name, reached)
    return Connection(
        server=f"{url.scheme}://{url.netloc}",
        path_prefix=url.path.rstrip("/"),
        token=identity.token,
        ca_pem=reached.ca_pem,
        namespace=str(entry.body.get("namespace") or "default"),
        context=name,
        insecure=reached.insecure,
        certificate=identity.certificate,
        sign_in=identity.sign_in,
        proxy=reached.proxy,
        tls_server_name=reached.tls_server_name,
    )


def build_client(connection: Connection, transport: Transport) -> Client:
    """A client that brings its own token, unless the transport has to renew it."""
    token = connection.token if connection.sign_in is None else ""
    return Client(transport, prefix=connection.path_prefix, token=token, agent=AGENT)


def _cluster(cluster: Entry, context: str) -> Cluster:
    insecure = bool(cluster.body.get("insecure-skip-tls-verify"))
    ca_pem = file_or_inline(cluster, "certificate-authority", context)
    if insecure and ca_pem is not None:
        raise KubeconfigError(
            f"{cluster.file}: the cluster of context {context!r} has a certificate-authority "
            "and says insecure-skip-tls-verify; only one can be meant"
        )
    return Cluster(
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
            f"{cluster.file}: the proxy-url of context {context!r} is not an address of an "
            "http or https proxy; others (socks5) are not supported"
        )
    return proxy


def _referred(entries: dict[str, Entry], context: Entry, what: str, name: str) -> Entry:
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
            "may hold only scheme, host, port and path"
        )
    return url


def _refuse_clear_text(url: SplitResult, cluster: Entry, context: str) -> None:
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise KubeconfigError(
            f"{cluster.file}: the server of context {context!r} is http, "
            "which would send the token in clear text; use https"
        )


def _names(entries: dict[str, Entry]) -> str:
    return ", ".join(sorted(entries)) or "none"
