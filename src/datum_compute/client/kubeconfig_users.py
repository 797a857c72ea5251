"""The ways a user of a kubeconfig signs in.

As in kubectl: a token file wins over a token, and either over a plugin; a certificate goes with
any of them. To add a way: a SignIn value in ``connection.py``, read here, made alive in
``credentials.py``.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from datum_compute.api.meta.codec import JsonObject
from datum_compute.client.auth.connection import (
    Certificate,
    ExecSignIn,
    FileSignIn,
    OidcSignIn,
    SignIn,
    checked_token,
)
from datum_compute.client.auth.kubeconfig_files import (
    Entry,
    KubeconfigError,
    file_or_inline,
    read_named_file,
)

_NOT_SUPPORTED = ("username", "password", "as", "as-groups", "as-uid", "as-user-extra")
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_MODES = ("Never", "IfAvailable", "Always")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster entry, read and checked."""

    server: str
    ca_pem: bytes | None
    insecure: bool
    tls_server_name: str
    proxy: str
    extensions: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Identity:
    token: str = field(default="", repr=False)
    certificate: Certificate | None = field(default=None, repr=False)
    sign_in: SignIn | None = None


def identity_of(user: Entry, context: str, cluster: Cluster) -> Identity:
    found = [key for key in _NOT_SUPPORTED if user.body.get(key)]
    if found:
        raise KubeconfigError(
            f"{user.file}: the user of context {context!r} uses {', '.join(found)}, which is not "
            "supported; sign in with a token, a certificate or a plugin"
        )
    token, token_file = _token(user, context)
    certificate, certificate_files = _certificate(user, context)
    sign_in: SignIn | None = None
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
    return Identity(token, certificate, sign_in)


def _token(user: Entry, context: str) -> tuple[str, Any]:
    """The token, and the file that renews it."""
    where = f"of context {context!r} in {user.file}"
    path = user.body.get("tokenFile")
    if path:  # kubectl lets the file win as well: it is the one that gets renewed
        body = read_named_file(user, str(path), "tokenFile", context)
        token = checked_token(body.decode("latin-1"), f"the tokenFile {where}")
        return token, user.path_of(str(path))
    if user.body.get("token"):
        return checked_token(str(user.body["token"]), f"the token {where}"), None
    return "", None


def _certificate(user: Entry, context: str) -> tuple[Certificate | None, Any]:
    """The certificate, and the files that renew it if it comes from files."""
    certificate = file_or_inline(user, "client-certificate", context)
    key = file_or_inline(user, "client-key", context)
    if certificate is None and key is None:
        return None, None
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise KubeconfigError(
            f"{user.file}: the user of context {context!r} has no {missing} to go with the other"
        )
    names = ("client-certificate", "client-key")
    inline = any(user.body.get(f"{name}-data") for name in names)
    files = None if inline else tuple(user.path_of(str(user.body[name])) for name in names)
    return Certificate(certificate, key), files


def _exec(user: Entry, context: str, cluster: Cluster) -> ExecSignIn:
    config = _mapping(user, "exec", user.body["exec"], context)
    wrong = _wrong_with_exec(config)
    if wrong:
        raise KubeconfigError(f"{user.file}: exec of the user of context {context!r}: {wrong}")
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


def _wrong_with_exec(config: JsonObject) -> str:
    version, mode = config.get("apiVersion"), config.get("interactiveMode")
    if version not in _EXEC_VERSIONS:
        return f"apiVersion must be one of {', '.join(_EXEC_VERSIONS)}"
    if not config.get("command"):
        return "it names no command"
    # v1 wants it said; before, a missing mode meant IfAvailable.
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


def _exec_cluster(cluster: Cluster) -> JsonObject:
    """What a plugin is told about the cluster it gives credentials for."""
    told: JsonObject = {"server": cluster.server}
    if cluster.tls_server_name:
        told["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure:
        told["insecure-skip-tls-verify"] = True
    if cluster.ca_pem is not None:
        told["certificate-authority-data"] = base64.b64encode(cluster.ca_pem).decode()
    if cluster.proxy:
        told["proxy-url"] = cluster.proxy
    for item in cluster.extensions:
        if isinstance(item, dict) and item.get("name") == _EXEC_EXTENSION:
            told["config"] = item.get("extension")
    return told


def _oidc(user: Entry, context: str) -> OidcSignIn:
    provider = _mapping(user, "auth-provider", user.body["auth-provider"], context)
    if provider.get("name") != "oidc":
        raise KubeconfigError(
            f"{user.file}: auth-provider {provider.get('name')!r} of context {context!r} is not "
            "supported; only oidc is, others have become exec plugins"
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
